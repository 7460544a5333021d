"""Slurm's queue as a scheduling problem: its nodes, and all users' jobs that need GPUs.

Parses the output of ``scontrol show job`` and ``scontrol show node``.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from fairlead.engines.shared.nodes.registry import natural_sort_key
from fairlead.engines.slurm.commands import SlurmNode, read_fields, read_node
from fairlead.model.cluster import Cluster, Node
from fairlead.model.errors import InputError
from fairlead.model.job import Job

JOBS_COMMAND = ("scontrol", "show", "job", "--details", "--oneliner")
NODES_COMMAND = ("scontrol", "show", "node", "--details", "--oneliner")
_GPU = re.compile(r"(?:^|,|:)(?:gres[:/])?gpu(?::([A-Za-z][^:=,(]*))?[:=](\d+)")
_HELD_ON = re.compile(r"\sNodes=(\S+)\s+CPU_IDs=\S*\s+Mem=\S*\s+GRES=(\S*)")
_INDEX = re.compile(r"gpu(?::([A-Za-z][^:,()]*))?:\d+\(IDX:([\d,-]*)\)")
_NAMES = re.compile(r"([^\[,]+)(?:\[([^\]]*)\]([^,]*))?(?:,|$)")
_ONCE = ("UserId", "Account", "JobState", "Reason", "SubmitTime", "Partition", "NumNodes", "TRES")
_ASSUMED_STEPS = 3600.0
"""steps of every job: Slurm does not know how much work a job has left"""


@dataclass(frozen=True, slots=True)
class QueuedJob:
    """A pending or running job that needs GPUs."""

    job: Job
    per_node: int | None
    """devices on each of its nodes; None where Slurm may choose"""
    waits: bool
    held: bool
    """held by its user or an operator: does not start before it is released"""
    holds: tuple[tuple[str, str, tuple[int, ...]], ...] = ()
    """node, accelerator and device indices of a running job"""


@dataclass(frozen=True, slots=True)
class SlurmQueue:
    """The nodes and jobs of a Slurm cluster."""

    cluster: Cluster
    down: frozenset[str]
    jobs: tuple[QueuedJob, ...]
    unparsed: tuple[str, ...] = ()
    """jobs whose name or comment looks like Slurm's fields, so that their owner is uncertain"""


def read_queue(
    nodes: str, jobs: str, *, partition: str = "", workloads: Sequence[str] = ()
) -> SlurmQueue:
    """Return the nodes with GPUs, optionally of one partition, and the jobs that need them.

    A job's workload is its comment, else its name, if the speeds table lists it; its tenant is its
    account, or its user where Slurm keeps no accounts.
    """
    listed = [read_node(line) for line in nodes.splitlines() if line.startswith("NodeName=")]
    usable = [n for n in listed if n.devices and (not partition or partition in n.partitions)]
    if not usable:
        where = f"partition {partition!r}" if partition else "the cluster"
        raise InputError(f"no node of {where} has GPUs", fix="name a partition with GPUs")
    cluster = Cluster(tuple(Node(n.name, n.devices) for n in sorted(usable, key=_by_name)))
    down = frozenset(n.name for n in usable if n.availability(reserved=False) == "down")
    queued, unparsed = [], []
    for line in jobs.splitlines():
        if not line.startswith("JobId="):
            continue
        if any(line.count(f" {name}=") > 1 for name in _ONCE):
            unparsed.append(read_fields(line)["JobId"])
            continue
        job = _read_job(line, cluster, partition, workloads)
        if job is not None:
            queued.append(job)
    return SlurmQueue(cluster, down, tuple(queued), tuple(unparsed))


def _by_name(node: SlurmNode) -> list[tuple[str, int]]:
    return natural_sort_key(node.name)


def _read_job(
    line: str, cluster: Cluster, partition: str, workloads: Sequence[str]
) -> QueuedJob | None:
    """Return a job that is pending or running on these nodes, None for any other."""
    fields = read_fields(line)
    state = fields.get("JobState", "")
    if state not in ("PENDING", "RUNNING") or "JobId" not in fields:
        return None
    if partition and partition not in fields.get("Partition", "").split(","):
        return None
    accelerator, count, per_node = _requested_devices(fields)
    holds = _held_devices(line, cluster) if state == "RUNNING" else ()
    if holds:
        count = sum(len(devices) for _, _, devices in holds)
    if not count or (state == "RUNNING" and not holds):
        return None
    if accelerator and accelerator not in cluster.accelerators:
        return None
    names = (fields.get("Comment", ""), fields.get("JobName", ""))
    job = Job(
        id=fields["JobId"],
        workload=next((name for name in names if name in workloads), ""),
        total_steps=_ASSUMED_STEPS,
        gang=count,
        arrival_at=_seconds(fields.get("SubmitTime", "")),
        tenant=_tenant(fields),
        accelerators=(accelerator,) if accelerator else None,
    )
    held = fields.get("Reason", "") in ("JobHeldUser", "JobHeldAdmin")
    return QueuedJob(job, per_node, state == "PENDING", held, holds)


def _requested_devices(fields: Mapping[str, str]) -> tuple[str, int, int | None]:
    """Return the accelerator that a job requires, its devices, and those on each node."""
    nodes = int(fields.get("NumNodes", "1").partition("-")[0] or 1)
    for name, times in (("TresPerNode", nodes), ("TresPerJob", 1), ("TRES", 1)):
        gpus = _GPU.findall(fields.get(name, ""))
        if gpus:
            accelerator, count = max(gpus, key=lambda gpu: bool(gpu[0]))
            in_all = int(count) * times
            fixed = name == "TresPerNode" or nodes > 1
            return accelerator, in_all, -(-in_all // nodes) if fixed else None
    return "", 0, None


def _held_devices(line: str, cluster: Cluster) -> tuple[tuple[str, str, tuple[int, ...]], ...]:
    known = {node.id for node in cluster.nodes}
    line = line.partition(" NumNodes=")[2].partition(" MinCPUsNode=")[0]
    return tuple(
        (node, accelerator or "gpu", _numbers(indices))
        for names, gres in _HELD_ON.findall(line)
        for node in expand(names)
        for accelerator, indices in _INDEX.findall(gres)
        if node in known and indices
    )


def expand(names: str) -> list[str]:
    """Return the names in a list such as ``n[1-3,7],m1``."""
    expanded = []
    for head, ranges, tail in _NAMES.findall(names):
        if not ranges:
            expanded.append(head)
            continue
        for part in ranges.split(","):
            first, _, last = part.partition("-")
            for number in range(int(first), int(last or first) + 1):
                expanded.append(f"{head}{number:0{len(first)}d}{tail}")
    return expanded


def _numbers(text: str) -> tuple[int, ...]:
    numbers: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        numbers += range(int(first), int(last or first) + 1)
    return tuple(numbers)


def _tenant(fields: Mapping[str, str]) -> str:
    account = fields.get("Account", "")
    return account if account not in ("", "(null)") else fields.get("UserId", "").partition("(")[0]


def _seconds(text: str) -> float:
    """Parse one of Slurm's times, which have no zone: only differences matter."""
    try:
        return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()
    except ValueError:
        return 0.0
