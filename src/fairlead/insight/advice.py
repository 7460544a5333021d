"""What a site that starts its jobs itself should start next, and where: advice, no leases.

The policy says how many devices each tenant is entitled to. Waiting jobs are then ranked by
filling: whoever holds the least part of its entitlement comes next, with what its jobs already
hold and what was advised before counted. A job that fits into what is free now is given nodes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fairlead.model.arrays import FloatArray
from fairlead.model.plan import NOBODY
from fairlead.model.snapshot import Snapshot
from fairlead.policies.base import Policy

_TIE = 9
"""digits to which shares are compared: solvers leave the rest to chance"""


@dataclass(frozen=True, slots=True)
class Advice:
    """One job: its rank among those that wait, and where it should run."""

    rank: int
    """1 comes first; 0 for jobs that run"""
    job: str
    tenant: str
    action: Literal["runs", "start", "wait"]
    accelerator: str
    """where it runs, is to start, or would be best off; empty where it holds several"""
    devices: int
    nodes: tuple[tuple[str, int], ...]
    """node and devices there; none for jobs that wait"""
    share: float
    """part of the time for which the policy would have it run"""


def advise(
    snap: Snapshot, policy: Policy, per_node: Mapping[str, int] | None = None
) -> list[Advice]:
    """Return advice on every job, those that run first, then the waiting ones by rank.

    ``per_node`` gives, for jobs of a fixed shape, how many devices each of their nodes must have;
    other gangs take one node if they can and else the nodes with most room.
    """
    filling = _Filling(snap, policy, per_node or {})
    runs = [filling.running(row) for row in np.flatnonzero(filling.runs).tolist()]
    return runs + filling.waiting()


class _Filling:
    def __init__(self, snap: Snapshot, policy: Policy, per_node: Mapping[str, int]) -> None:
        self._snap, self._per_node = snap, per_node
        kinds, tenants = len(snap.capacity), len(snap.tenants)
        self._share, self._entitled = _entitlements(snap, policy)
        self._gang = np.broadcast_to(snap.gang_on, (len(snap.job), kinds))
        self.runs = np.zeros(len(snap.job), dtype=bool)
        self._devices: dict[int, list[int]] = {}
        self._held = np.zeros((tenants, kinds))
        free = np.zeros(len(snap.cluster.node_of), dtype=bool)
        free[snap.usable] = True
        kind_of, owner = snap.cluster.accelerator_of, snap.tenant
        for lane in snap.holds:
            for device in np.flatnonzero(lane != NOBODY).tolist():
                row = int(lane[device])
                self._devices.setdefault(row, []).append(device)
                self._held[owner[row], kind_of[device]] += 1.0
                self.runs[row], free[device] = True, False
        self._room: list[dict[int, int]] = [{} for _ in range(kinds)]
        """accelerators → node → free devices"""
        for device in np.flatnonzero(free).tolist():
            here, node = self._room[kind_of[device]], int(snap.cluster.node_of[device])
            here[node] = here.get(node, 0) + 1

    def running(self, row: int) -> Advice:
        """Return what is to say of a job that runs."""
        nodes: dict[int, int] = {}
        for device in self._devices[row]:
            node = int(self._snap.cluster.node_of[device])
            nodes[node] = nodes.get(node, 0) + 1
        on = {int(self._snap.cluster.accelerator_of[device]) for device in self._devices[row]}
        return self._advice(0, row, "runs", on.pop() if len(on) == 1 else NOBODY, nodes)

    def waiting(self) -> list[Advice]:
        """Return the waiting jobs by rank; each that fits is given its devices."""
        snap, share = self._snap, self._share.sum(axis=1).round(_TIE)
        queues: dict[int, list[int]] = {}
        first = np.lexsort((snap.job, snap.arrival_at, -share, -snap.priority))
        for row in first[~self.runs[first]].tolist():
            queues.setdefault(int(snap.tenant[row]), []).append(row)
        entitled = self._entitled.sum(axis=1)
        advised: list[Advice] = []
        while queues:
            tenant = min(queues, key=lambda t: self._standing(t, entitled, queues[t][0]))
            row = queues[tenant].pop(0)
            if not queues[tenant]:
                del queues[tenant]
            advised.append(self._next(len(advised) + 1, row, tenant))
        return advised

    def _standing(self, tenant: int, entitled: FloatArray, row: int) -> tuple[float, ...]:
        """Return a key that is least for the tenant who comes next."""
        part = self._held[tenant].sum() / entitled[tenant] if entitled[tenant] > 0 else np.inf
        rank = -self._snap.tenants[tenant].priority
        return (rank, round(float(part), _TIE), float(self._snap.arrival_at[row]), float(row))

    def _next(self, rank: int, row: int, tenant: int) -> Advice:
        snap, speed = self._snap, self._snap.speed[row]
        owed = np.maximum(self._entitled[tenant] - self._held[tenant], 0.0)
        order = np.lexsort((-speed, -owed.round(_TIE), -self._share[row].round(_TIE)))
        able = [kind for kind in order.tolist() if speed[kind] > 0]
        gang = self._gang[row]
        for kind in able:
            each = self._per_node.get(snap.ids[int(snap.job[row])])
            nodes = self._fit(kind, int(gang[kind]), each)
            if nodes:
                self._held[tenant, kind] += gang[kind]
                return self._advice(rank, row, "start", kind, nodes)
        best = able[0] if able else NOBODY
        if able:
            self._held[tenant, best] += gang[best]
        return self._advice(rank, row, "wait", best, {})

    def _fit(self, kind: int, gang: int, each: int | None) -> dict[int, int]:
        """Take devices for a gang: the tightest nodes that hold a whole part; none if it fails."""
        room = self._room[kind]
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
        kind: int,
        nodes: Mapping[int, int],
    ) -> Advice:
        snap = self._snap
        return Advice(
            rank=rank,
            job=snap.ids[int(snap.job[row])],
            tenant=snap.tenants[int(snap.tenant[row])].id,
            action=action,
            accelerator="" if kind == NOBODY else snap.cluster.accelerators[kind],
            devices=sum(nodes.values()) or int(self._gang[row, kind]),
            nodes=tuple(
                (snap.cluster.nodes[node].id, count) for node, count in sorted(nodes.items())
            ),
            share=float(self._share[row].sum()),
        )


def _entitlements(snap: Snapshot, policy: Policy) -> tuple[FloatArray, FloatArray]:
    """Return jobs × accelerators → part of the time, tenants × accelerators → devices."""
    kinds, tenants = len(snap.capacity), len(snap.tenants)
    share = np.zeros((len(snap.job), kinds))
    entitled = np.zeros((tenants, kinds))
    if not len(snap.job):
        return share, entitled
    found = policy.allocate(snap)
    columns = [column.accelerator for column in found.columns]
    by_kind = np.zeros((len(found.share), kinds))
    for column, kind in enumerate(columns):
        by_kind[:, kind] += found.share[:, column]
    if found.rows == "tenants":
        np.add.at(entitled, found.members[:, 0], by_kind)
        return share, entitled
    row_of = {number: row for row, number in enumerate(snap.job.tolist())}
    for members, part in zip(found.members.tolist(), by_kind, strict=True):
        rows = [row_of[number] for number in members if number != NOBODY]
        for row in rows:
            gang = snap.gang_on[row].astype(float)
            share[row] += part / gang if found.measure == "devices" else part
            devices = part if found.measure == "devices" else part * gang
            entitled[snap.tenant[row]] += devices / len(rows)
    return share, entitled
