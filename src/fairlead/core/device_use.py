"""The use of each device of a scheduler's cluster."""

from typing import Any, NamedTuple

from fairlead.core.scheduler import Scheduler


class DeviceUse(NamedTuple):
    """One device and the jobs that hold it."""

    node: str
    accelerator: str
    jobs: tuple[int, ...]
    """numbers of the jobs that hold it"""
    taken: bool
    """whether a user outside Fairlead holds it, or it is missing"""


def device_use(scheduler: Scheduler[Any]) -> list[DeviceUse]:
    """Return all devices, except those of removed nodes, in their order."""
    nodes, cluster, leases = scheduler.nodes, scheduler.cluster, scheduler.leases
    columns = (cluster.node_of, cluster.accelerator_of, nodes.taken)
    node_of, accelerator_of, taken = (column.tolist() for column in columns)
    names, removed = [node.id for node in cluster.nodes], nodes.removed
    accelerators, job_of = cluster.accelerators, leases.job
    return [
        DeviceUse(
            names[node_of[i]],
            accelerators[accelerator_of[i]],
            tuple(job_of.item(slot) for slot in slots if slot >= 0),
            bool(taken[i]),
        )
        for i, slots in enumerate(leases.holder.T.tolist())
        if node_of[i] not in removed
    ]
