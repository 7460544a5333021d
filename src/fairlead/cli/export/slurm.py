"""Advice on Slurm's own queue: from what its commands print to ranked jobs."""

import subprocess
from dataclasses import replace
from pathlib import Path

from fairlead.cli.shared.output import messages
from fairlead.core import Scheduler
from fairlead.engines.slurm.commands import SlurmError
from fairlead.engines.slurm.queue import (
    JOBS_COMMAND,
    NODES_COMMAND,
    Queue,
    read_queue,
)
from fairlead.files import read_speeds
from fairlead.files.parsing.text import read_text
from fairlead.files.tenants import read_tenants
from fairlead.insight.advice import Advice, advise
from fairlead.mechanisms.shares import Shares
from fairlead.model import events as ev
from fairlead.model.errors import InputError, UsageError
from fairlead.model.lease import Placement, Placements
from fairlead.model.snapshot import Snapshot
from fairlead.model.speeds.table import SpeedTable
from fairlead.policies.rules.priority import policy_named

_PATIENCE_S = 60.0


def ask_slurm() -> tuple[str, str]:
    """Return what Slurm says of its nodes and jobs."""
    return _ask(NODES_COMMAND), _ask(JOBS_COMMAND)


def read_files(jobs: Path | None, nodes: Path | None) -> tuple[str, str]:
    """Return what Slurm said of its nodes and jobs when the files were made."""
    if jobs is None or nodes is None:
        raise UsageError("--slurm-jobs and --slurm-nodes go together")
    return read_text(nodes).body, read_text(jobs).body


def advise_slurm(
    nodes: str, jobs: str, partition: str, policy: str, speeds: str, tenants: Path | None
) -> tuple[list[Advice], Queue]:
    """Return advice on the jobs in Slurm's queue, and the queue."""
    # What nobody has measured runs everywhere alike.
    table = replace(read_speeds(speeds), assumed=1.0)
    queue = read_queue(nodes, jobs, partition=partition, workloads=table.workloads)
    if queue.unread:
        messages.print(
            f"left out: job {', '.join(queue.unread)}, whose name or comment looks like fields"
            " of Slurm's",
            highlight=False,
        )
    snap, shapes = _snapshot(queue, table, policy, tenants)
    return advise(snap, policy_named(policy), shapes), queue


def _ask(command: tuple[str, ...]) -> str:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_PATIENCE_S, check=False
        )
    except FileNotFoundError:
        raise SlurmError(
            f"there is no {command[0]} here: install Slurm's client, or give --slurm-jobs and"
            " --slurm-nodes"
        ) from None
    except subprocess.TimeoutExpired:
        raise SlurmError(f"{command[0]} did not answer in {_PATIENCE_S:g} s") from None
    if done.returncode:
        raise SlurmError(f"{command[0]}: {done.stderr.strip()}")
    return done.stdout


def _snapshot(
    queue: Queue, table: SpeedTable, policy: str, tenants: Path | None
) -> tuple[Snapshot, dict[str, int]]:
    """Return the queue as a decision sees it, and how many devices a node must have for a job."""
    scheduler = Scheduler(queue.cluster, table, Shares(policy_named(policy)))
    if tenants is not None:
        for tenant in read_tenants(tenants).tenants:
            scheduler.handle(ev.TenantChanged(0.0, tenant))
    now = max((one.job.arrival_at for one in queue.jobs), default=0.0)
    running: list[Placement] = []
    for one in sorted(queue.jobs, key=lambda one: (one.job.arrival_at, one.job.id)):
        try:
            number = scheduler.jobs.add(one.job)
        except InputError as error:
            messages.print(f"left out: {error}", highlight=False, markup=False)
            continue
        devices = tuple(
            device for name, _, numbers in one.holds for device in _devices(queue, name, numbers)
        )
        if devices:
            running.append(Placement(number, 0, devices))
    if running:
        scheduler.leases.start(Placements.of(running), now)
    for node in sorted(queue.down):
        scheduler.handle(ev.NodeLost(now, node))
    shapes = {one.job.id: one.per_node for one in queue.jobs if one.per_node is not None}
    return scheduler.snapshot(now, now), shapes


def _devices(queue: Queue, name: str, numbers: tuple[int, ...]) -> list[int]:
    """Return the devices of a node that have these indices."""
    first = 0
    for node in queue.cluster.nodes:
        if node.id == name:
            return [first + number for number in numbers if number < len(node.devices)]
        first += len(node.devices)
    return []
