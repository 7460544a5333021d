"""Advice on a Slurm queue, read from the output of Slurm's commands."""

import subprocess
from dataclasses import replace
from pathlib import Path

from fairlead.cli.shared.output import messages
from fairlead.core import Scheduler
from fairlead.engines.shared.nodes.registry import natural_sort_key
from fairlead.engines.slurm.commands import SlurmError
from fairlead.engines.slurm.queue import (
    JOBS_COMMAND,
    NODES_COMMAND,
    SlurmQueue,
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
from fairlead.policies.rules.priority import create_policy

_TIMEOUT_S = 60.0


def query_slurm() -> tuple[str, str]:
    """Return the descriptions of Slurm's nodes and of its jobs."""
    return _output_of(NODES_COMMAND), _output_of(JOBS_COMMAND)


def read_files(jobs: Path | None, nodes: Path | None) -> tuple[str, str]:
    """Return the saved descriptions of Slurm's nodes and of its jobs."""
    if jobs is None or nodes is None:
        raise UsageError("--slurm-jobs, --slurm-nodes: one is missing: expected both")
    return read_text(nodes).body, read_text(jobs).body


def advise_slurm(
    nodes: str, jobs: str, partition: str, policy: str, speeds: str, tenants: Path | None
) -> tuple[list[Advice], SlurmQueue]:
    """Return advice on the jobs in Slurm's queue, and the queue."""
    # Workloads without a measured speed are assumed to run equally fast everywhere.
    table = replace(read_speeds(speeds), assumed=1.0)
    queue = read_queue(nodes, jobs, partition=partition, workloads=table.workloads)
    if queue.unparsed:
        messages.print(
            f"left out: job {', '.join(queue.unparsed)}: name or comment looks like Slurm fields",
            highlight=False,
        )
    snap, shapes = _snapshot(queue, table, policy, tenants)
    return advise(snap, create_policy(policy), shapes), queue


def _output_of(command: tuple[str, ...]) -> str:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except FileNotFoundError:
        raise SlurmError(
            f"{command[0]}: missing: install Slurm's client, or use --slurm-jobs and --slurm-nodes"
        ) from None
    except subprocess.TimeoutExpired:
        raise SlurmError(f"{command[0]}: no answer within {_TIMEOUT_S:g} s") from None
    if done.returncode:
        raise SlurmError(f"{command[0]}: {done.stderr.strip()}")
    return done.stdout


def _snapshot(
    queue: SlurmQueue, table: SpeedTable, policy: str, tenants: Path | None
) -> tuple[Snapshot, dict[str, int]]:
    """Return the snapshot of the queue, and job → devices that it needs on each node."""
    scheduler = Scheduler(queue.cluster, table, Shares(create_policy(policy)))
    if tenants is not None:
        for tenant in read_tenants(tenants).tenants:
            scheduler.handle(ev.TenantChanged(0.0, tenant))
    now = max((entry.job.arrival_at for entry in queue.jobs), default=0.0)
    running: list[Placement] = []
    # Slurm tells the second of a submission only.
    for entry in sorted(
        queue.jobs, key=lambda entry: (entry.job.arrival_at, natural_sort_key(entry.job.id))
    ):
        try:
            number = scheduler.jobs.add(entry.job)
        except InputError as error:
            messages.print(f"left out: {error}", highlight=False, markup=False)
            continue
        devices = tuple(
            device for name, _, numbers in entry.holds for device in _devices(queue, name, numbers)
        )
        if devices:
            running.append(Placement(number, 0, devices))
    if running:
        scheduler.leases.start(Placements.of(running), now)
    for node in sorted(queue.down):
        scheduler.handle(ev.NodeLost(now, node))
    shapes = {entry.job.id: entry.per_node for entry in queue.jobs if entry.per_node is not None}
    return scheduler.snapshot(now, now), shapes


def _devices(queue: SlurmQueue, name: str, numbers: tuple[int, ...]) -> list[int]:
    """Return the devices of a node that have these indices."""
    first = 0
    for node in queue.cluster.nodes:
        if node.id == name:
            return [first + number for number in numbers if number < len(node.devices)]
        first += len(node.devices)
    return []
