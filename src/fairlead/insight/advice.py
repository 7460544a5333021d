"""Advice for sites that start jobs themselves: the next jobs to start, and their nodes.

The policy determines the devices to which each tenant is entitled. Waiting jobs are then ranked
greedily: the tenant that holds the smallest fraction of its entitlement comes next, counting the
devices of its running jobs and of earlier advice. A job that fits on free devices gets nodes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fairlead.model.arrays import FloatArray
from fairlead.model.plan import ABSENT
from fairlead.model.snapshot import Snapshot
from fairlead.policies.base import Policy

_TIE = 9
"""digits to which shares are compared; further digits depend on the solver"""


@dataclass(frozen=True, slots=True)
class Advice:
    """Advice on one job: its rank among the waiting jobs, and its nodes."""

    rank: int
    """1 for the first waiting job; 0 for running jobs"""
    job: str
    tenant: str
    action: Literal["runs", "start", "wait"]
    accelerator: str
    """accelerator on which the job runs, should start or runs best; empty if it holds several"""
    devices: int
    nodes: tuple[tuple[str, int], ...]
    """pairs of node and number of devices; empty for waiting jobs"""
    share: float
    """fraction of time that the policy allocates to the job"""


def advise(
    snap: Snapshot, policy: Policy, per_node: Mapping[str, int] | None = None
) -> list[Advice]:
    """Return advice on every job: running jobs first, then waiting jobs by rank.

    ``per_node`` gives the devices per node of jobs with a fixed shape; other gangs take one node
    if possible, otherwise the nodes with the most free devices.
    """
    greedy = _GreedyStart(snap, policy, per_node or {})
    runs = [greedy.running(row) for row in np.flatnonzero(greedy.runs).tolist()]
    return runs + greedy.waiting()


class _GreedyStart:
    """Greedy ranking and placement of waiting jobs."""

    def __init__(self, snap: Snapshot, policy: Policy, per_node: Mapping[str, int]) -> None:
        self._snap, self._per_node = snap, per_node
        n_accelerators, tenants = len(snap.capacity), len(snap.tenants)
        self._share, self._entitled = _entitlements(snap, policy)
        self._gang = np.broadcast_to(snap.gang_on, (len(snap.job), n_accelerators))
        self.runs = np.zeros(len(snap.job), dtype=bool)
        self._devices: dict[int, list[int]] = {}
        self._held = np.zeros((tenants, n_accelerators))
        free = np.zeros(len(snap.cluster.node_of), dtype=bool)
        free[snap.usable] = True
        accelerator_of, owner = snap.cluster.accelerator_of, snap.tenant
        for lane in snap.holds:
            for device in np.flatnonzero(lane != ABSENT).tolist():
                row = int(lane[device])
                self._devices.setdefault(row, []).append(device)
                self._held[owner[row], accelerator_of[device]] += 1.0
                self.runs[row], free[device] = True, False
        self._room: list[dict[int, int]] = [{} for _ in range(n_accelerators)]
        """accelerators → node → free devices"""
        for device in np.flatnonzero(free).tolist():
            here, node = self._room[accelerator_of[device]], int(snap.cluster.node_of[device])
            here[node] = here.get(node, 0) + 1

    def running(self, row: int) -> Advice:
        """Return the advice on a running job."""
        nodes: dict[int, int] = {}
        for device in self._devices[row]:
            node = int(self._snap.cluster.node_of[device])
            nodes[node] = nodes.get(node, 0) + 1
        on = {int(self._snap.cluster.accelerator_of[device]) for device in self._devices[row]}
        return self._advice(0, row, "runs", on.pop() if len(on) == 1 else ABSENT, nodes)

    def waiting(self) -> list[Advice]:
        """Return the waiting jobs by rank; each job that fits gets devices."""
        snap, share = self._snap, self._share.sum(axis=1).round(_TIE)
        queues: dict[int, list[int]] = {}
        first = np.lexsort((snap.job, snap.arrival_at, -share, -snap.priority))
        for row in first[~self.runs[first]].tolist():
            queues.setdefault(int(snap.tenant[row]), []).append(row)
        entitled = self._entitled.sum(axis=1)
        advised: list[Advice] = []
        while queues:
            tenant = min(queues, key=lambda t: self._order_key(t, entitled, queues[t][0]))
            row = queues[tenant].pop(0)
            if not queues[tenant]:
                del queues[tenant]
            advised.append(self._next(len(advised) + 1, row, tenant))
        return advised

    def _order_key(self, tenant: int, entitled: FloatArray, row: int) -> tuple[float, ...]:
        """Return a sort key; the tenant with the smallest key comes next."""
        part = self._held[tenant].sum() / entitled[tenant] if entitled[tenant] > 0 else np.inf
        rank = -self._snap.tenants[tenant].priority
        return (rank, round(float(part), _TIE), float(self._snap.arrival_at[row]), float(row))

    def _next(self, rank: int, row: int, tenant: int) -> Advice:
        snap, speed = self._snap, self._snap.speed[row]
        owed = np.maximum(self._entitled[tenant] - self._held[tenant], 0.0)
        order = np.lexsort((-speed, -owed.round(_TIE), -self._share[row].round(_TIE)))
        able = [accelerator for accelerator in order.tolist() if speed[accelerator] > 0]
        gang = self._gang[row]
        for accelerator in able:
            each = self._per_node.get(snap.ids[int(snap.job[row])])
            nodes = self._fit(accelerator, int(gang[accelerator]), each)
            if nodes:
                self._held[tenant, accelerator] += gang[accelerator]
                return self._advice(rank, row, "start", accelerator, nodes)
        best = able[0] if able else ABSENT
        if able:
            self._held[tenant, best] += gang[best]
        return self._advice(rank, row, "wait", best, {})

    def _fit(self, accelerator: int, gang: int, each: int | None) -> dict[int, int]:
        """Take devices for a gang on the tightest nodes that fit; return {} if none do."""
        room = self._room[accelerator]
        if each is None and sum(room.values()) < gang:
            return {}
        taken: dict[int, int] = {}
        left = gang
        while left:
            part = min(each or left, left)
            fitting = [(free, node) for node, free in room.items() if free >= part > 0]
            fitting = [(free, node) for free, node in fitting if node not in taken]
            if fitting:
                node = min(fitting)[1]
            elif each is None:
                node = max(room, key=lambda n: (room[n] - taken.get(n, 0), -n))
                part = room[node]
            else:
                for node, count in taken.items():
                    room[node] = room.get(node, 0) + count
                return {}
            taken[node] = part
            room[node] -= part
            if not room[node]:
                del room[node]
            left -= part
        return taken

    def _advice(
        self,
        rank: int,
        row: int,
        action: Literal["runs", "start", "wait"],
        accelerator: int,
        nodes: Mapping[int, int],
    ) -> Advice:
        snap = self._snap
        return Advice(
            rank=rank,
            job=snap.ids[int(snap.job[row])],
            tenant=snap.tenants[int(snap.tenant[row])].id,
            action=action,
            accelerator="" if accelerator == ABSENT else snap.cluster.accelerators[accelerator],
            devices=sum(nodes.values()) or int(self._gang[row, accelerator]),
            nodes=tuple(
                (snap.cluster.nodes[node].id, count) for node, count in sorted(nodes.items())
            ),
            share=float(self._share[row].sum()),
        )


def _entitlements(snap: Snapshot, policy: Policy) -> tuple[FloatArray, FloatArray]:
    """Return jobs × accelerators → share of time, tenants × accelerators → devices."""
    n_accelerators, tenants = len(snap.capacity), len(snap.tenants)
    share = np.zeros((len(snap.job), n_accelerators))
    entitled = np.zeros((tenants, n_accelerators))
    if not len(snap.job):
        return share, entitled
    allocation = policy.allocate(snap)
    columns = [column.accelerator for column in allocation.columns]
    by_accelerator = np.zeros((len(allocation.share), n_accelerators))
    for column, accelerator in enumerate(columns):
        by_accelerator[:, accelerator] += allocation.share[:, column]
    if allocation.rows == "tenants":
        np.add.at(entitled, allocation.members[:, 0], by_accelerator)
        return share, entitled
    row_of = {number: row for row, number in enumerate(snap.job.tolist())}
    for members, part in zip(allocation.members.tolist(), by_accelerator, strict=True):
        rows = [row_of[number] for number in members if number != ABSENT]
        for row in rows:
            gang = snap.gang_on[row].astype(float)
            share[row] += part / gang if allocation.measure == "devices" else part
            devices = part if allocation.measure == "devices" else part * gang
            entitled[snap.tenant[row]] += devices / len(rows)
    return share, entitled
