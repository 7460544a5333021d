"""Slurm's own queue as a problem: its nodes, and everybody's jobs that want GPUs.

Read from what ``scontrol show job`` and ``scontrol show node`` print, here or in files.
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
"""Slurm does not know how much is left of a job: all are alike in that"""


@dataclass(frozen=True, slots=True)
class QueuedJob:
    """A job that wants GPUs and waits or runs."""

    job: Job
    per_node: int | None
    """devices on each of its nodes; None where Slurm may choose"""
    waits: bool
    held: bool
    """by its user or an operator: it does not start before it is released"""
    holds: tuple[tuple[str, str, tuple[int, ...]], ...] = ()
    """node, accelerator and the indices of devices there, of a job that runs"""


@dataclass(frozen=True, slots=True)
class Queue:
    """What can be decided about."""

    cluster: Cluster
    down: frozenset[str]
    jobs: tuple[QueuedJob, ...]
    unread: tuple[str, ...] = ()
    """jobs whose name or comment looks like fields of Slurm's: nobody knows whose they are"""


def read_queue(
    nodes: str, jobs: str, *, partition: str = "", workloads: Sequence[str] = ()
) -> Queue:
    """Return the nodes with GPUs, of a partition if one is named, and the jobs that want them.

    A job's workload is its comment or else its name, where the speeds know it; its tenant is its
    account, or its user where Slurm keeps no accounts.
    """
    found = [read_node(line) for line in nodes.splitlines() if line.startswith("NodeName=")]
    mine = [n for n in found if n.devices and (not partition or partition in n.partitions)]
    if not mine:
        where = f"partition {partition!r}" if partition else "the cluster"
        raise InputError(f"no node of {where} has GPUs", fix="name a partition that has some")
    cluster = Cluster(tuple(Node(n.name, n.devices) for n in sorted(mine, key=_by_name)))
    down = frozenset(n.name for n in mine if n.standing(reserved=False) == "down")
    listed, unread = [], []
    for line in jobs.splitlines():
        if not line.startswith("JobId="):
            continue
        if any(line.count(f" {name}=") > 1 for name in _ONCE):
            unread.append(read_fields(line)["JobId"])
            continue
        job = _read_job(line, cluster, partition, workloads)
        if job is not None:
            listed.append(job)
    return Queue(cluster, down, tuple(listed), tuple(unread))


def _by_name(node: SlurmNode) -> list[tuple[str, int]]:
    return natural_sort_key(node.name)


def _read_job(
    line: str, cluster: Cluster, partition: str, workloads: Sequence[str]
) -> QueuedJob | None:
    """Return a job that waits or runs on these nodes, None for any other."""
    found = read_fields(line)
    state = found.get("JobState", "")
    if state not in ("PENDING", "RUNNING") or "JobId" not in found:
        return None
    if partition and partition not in found.get("Partition", "").split(","):
        return None
    kind, count, per_node = _wanted(found)
    holds = _held(line, cluster) if state == "RUNNING" else ()
    if holds:
        count = sum(len(devices) for _, _, devices in holds)
    if not count or (state == "RUNNING" and not holds):
        return None
    if kind and kind not in cluster.accelerators:
        return None
    named = (found.get("Comment", ""), found.get("JobName", ""))
    job = Job(
        id=found["JobId"],
        workload=next((name for name in named if name in workloads), ""),
        total_steps=_ASSUMED_STEPS,
        gang=count,
        arrival_at=_seconds(found.get("SubmitTime", "")),
        tenant=_tenant(found),
        accelerators=(kind,) if kind else None,
    )
    held = found.get("Reason", "") in ("JobHeldUser", "JobHeldAdmin")
    return QueuedJob(job, per_node, state == "PENDING", held, holds)


def _wanted(found: Mapping[str, str]) -> tuple[str, int, int | None]:
    """Return the accelerator that a job insists on, its devices, and those of each node."""
    nodes = int(found.get("NumNodes", "1").partition("-")[0] or 1)
    for name, times in (("TresPerNode", nodes), ("TresPerJob", 1), ("TRES", 1)):
        gpus = _GPU.findall(found.get(name, ""))
        if gpus:
            kind, count = max(gpus, key=lambda gpu: bool(gpu[0]))
            in_all = int(count) * times
            fixed = name == "TresPerNode" or nodes > 1
            return kind, in_all, -(-in_all // nodes) if fixed else None
    return "", 0, None


def _held(line: str, cluster: Cluster) -> tuple[tuple[str, str, tuple[int, ...]], ...]:
    known = {node.id for node in cluster.nodes}
    line = line.partition(" NumNodes=")[2].partition(" MinCPUsNode=")[0]
    return tuple(
        (node, kind or "gpu", _numbers(indices))
        for names, gres in _HELD_ON.findall(line)
        for node in expand(names)
        for kind, indices in _INDEX.findall(gres)
        if node in known and indices
    )


def expand(names: str) -> list[str]:
    """Return the names that a list such as ``n[1-3,7],m1`` stands for."""
    found = []
    for head, ranges, tail in _NAMES.findall(names):
        if not ranges:
            found.append(head)
            continue
        for part in ranges.split(","):
            first, _, last = part.partition("-")
            for number in range(int(first), int(last or first) + 1):
                found.append(f"{head}{number:0{len(first)}d}{tail}")
    return found


def _numbers(text: str) -> tuple[int, ...]:
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return tuple(found)


def _tenant(found: Mapping[str, str]) -> str:
    account = found.get("Account", "")
    return account if account not in ("", "(null)") else found.get("UserId", "").partition("(")[0]


def _seconds(text: str) -> float:
    """Return a time of Slurm's, which has no zone: only differences matter."""
    try:
        return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()
    except ValueError:
        return 0.0
