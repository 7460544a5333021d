"""Gandiva: introspective scheduling by time slices, packing and migration (OSDI 2018)."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fairlead.mechanisms.gandiva.grow_shrink import learn, resize
from fairlead.mechanisms.gandiva.memory import Memory, Task, Unit, fresh, tasks_of
from fairlead.mechanisms.gandiva.migration import away, defragment, move_to_vacated, together
from fairlead.mechanisms.gandiva.packing import Fresh, judge, start_trials, unpack
from fairlead.mechanisms.gandiva.servers import Servers, home_of
from fairlead.mechanisms.gandiva.time_slices import (
    held_devices,
    on_devices,
    record_unit_weight,
    select_units,
)
from fairlead.model.arrays import IntArray
from fairlead.model.lease import NO_PLACEMENTS, Placements
from fairlead.model.plan import Plan
from fairlead.model.snapshot import Snapshot
from fairlead.placement import towards


@dataclass(frozen=True)
class Gandiva:
    """Give every job a server at once and time-slice; then improve by what jobs measure.

    Jobs are placed with jobs of the same gang (Algorithm 1) and share a server's devices in turns
    of ``round_s``. Meanwhile jobs report their speed, utilisation and memory, and by these alone
    jobs are packed, moved, and grown where they have declared that they can. It knows which
    accelerators a job may use, but never how fast it would be there.
    """

    round_s: float = 60.0
    """length of a time slice"""
    packing: bool = True
    """pack jobs onto the same devices during overload"""
    migration: bool = True
    """move jobs to vacated devices, together, away from neighbours, and to defragment"""
    growth: bool = True
    """let jobs that are declared elastic grow and shrink"""
    tries: int = 2
    """undone packings after which a job is left alone"""
    loss: float = 0.1
    """part of its best speed whose loss means that neighbours disturb a job"""
    fragmented: float = 0.75
    """part of a server that has to be free for it to be emptied: 3 of 4"""
    grow_after_s: float = 300.0
    """how long nothing must change on a server before jobs grow beyond their gang there"""

    starves_nobody: ClassVar[bool] = True
    reads_progress: ClassVar[bool] = False
    reads_measured: ClassVar[bool] = True

    def initial(self) -> Memory:
        """Return a memory without jobs."""
        return Memory.empty()

    def plan(self, snap: Snapshot, memory: Memory) -> tuple[Plan, Memory]:
        """Return this slice: who is new gets a home, what was tried is judged, all take turns."""
        at, until = snap.starts_at, snap.starts_at + self.round_s
        tasks, news = tasks_of(snap, memory), fresh(snap, memory)
        held = held_devices(snap)
        servers = Servers(snap)
        units = self._restored_units(servers, memory, tasks, held)
        self._learn(servers, units, news)
        failed = set(memory.failed)
        homeless = [Unit([task]) for task in self._without(units, tasks)]
        homeless += judge(units, news, failed)
        waiting = self._place(servers, homeless)
        if self.packing:
            start_trials(servers, snap.cluster.memory_gib, failed, tries=self.tries)
        if self.migration:
            self._migrate(servers, snap, memory, held)
        if self.packing:
            unpack(servers, news, loss=self.loss)
        changed_at = np.full(len(servers.load), at)
        known = len(memory.load)  # servers that joined since come last
        same = servers.load[:known] == memory.load
        changed_at[:known][same] = memory.changed_at[same]
        idle = self.growth and not waiting and not servers.overload
        resize(servers, changed_at, at, grow_after_s=self.grow_after_s, idle=idle)
        units = list(servers.all_units())
        chosen = select_units(servers, units)
        record_unit_weight(units)
        stop, start = towards(snap, on_devices(servers, chosen, held))
        after = Memory.of(snap, [*units, *waiting], failed, servers.load, changed_at)
        return Plan(stop, start, until, until), after

    def refill(self, snap: Snapshot, memory: Memory, idle: IntArray) -> Placements:
        """Return jobs for devices that fall idle: whose turn is next there, then new ones."""
        tasks, held = tasks_of(snap, memory), held_devices(snap)
        servers = Servers(snap)
        units = self._restored_units(servers, memory, tasks, held)
        holding = set(snap.job[snap.holds[snap.holds >= 0]].tolist())
        servers.by_devices = [idle[servers.of_device[idle] == s] for s in range(len(servers.size))]
        new = [Unit([task]) for task in self._without(units, tasks) if task.job not in holding]
        # Whoever comes takes devices that nobody needs; nobody is moved or shrunk in mid-slice.
        for unit in sorted(new, key=lambda u: (tuple(-r for r in u.rank), u.job)):
            home = servers.get_nodes(unit)
            taken = servers.load + servers.extra
            if home and all(taken[s] + count <= servers.size[s] for s, count in home.items()):
                servers.settle(unit, home)
        waits = [
            unit
            for unit in servers.all_units()
            if not any(task.job in holding for task in unit.tasks)
        ]
        servers.size = np.array([len(devices) for devices in servers.by_devices])
        for unit in waits:
            unit.tasks[0].size = float(unit.need)
        found = on_devices(servers, select_units(servers, waits), {})
        return Placements.of(found) if found else NO_PLACEMENTS

    # -- from plan to plan ----------------------------------------------------------------------

    def _restored_units(
        self,
        servers: Servers,
        memory: Memory,
        tasks: dict[int, Task],
        held: dict[int, tuple[int, ...]],
    ) -> list[Unit]:
        """Return the units of the last plan whose homes still stand, settled there.

        Jobs that were started in between belong where they are.
        """
        units = []
        for jobs, home, (total, joined, bar) in zip(
            memory.units, memory.homes, memory.trials.tolist(), strict=True
        ):
            mine = [tasks[job] for job in jobs if job in tasks]
            if not mine or any(servers.size[server] < count for server, count in home):
                continue
            # Whoever has lost a partner is measured anew, and its trial is over.
            whole = len(mine) == len(jobs)
            unit = Unit(mine, {}, total, int(joined), bar) if whole else Unit(mine)
            servers.settle(unit, dict(home))
            units.append(unit)
        known = {task.job for unit in units for task in unit.tasks}
        for job, devices in held.items():
            if job not in known:
                unit = Unit([tasks[job]])
                servers.arrive(unit, home_of(servers, unit, devices))
                units.append(unit)
        for unit in units:
            task = unit.tasks[0]
            if task.elastic and len(unit.home) == 1:
                (server,) = unit.home
                servers.extra[server] += max(int(task.size) - task.floor, 0)
        return units

    @staticmethod
    def _without(units: Iterable[Unit], tasks: dict[int, Task]) -> list[Task]:
        homed = {task.job for unit in units for task in unit.tasks}
        return [task for job, task in tasks.items() if job not in homed]

    def _learn(self, servers: Servers, units: list[Unit], news: Fresh) -> None:
        """Note what jobs have measured: the best they can do alone, and how they do now."""
        for unit in units:
            for task in unit.tasks:
                if task.job not in news:
                    continue
                task.now, utilization, memory_gib = news[task.job]
                if task.elastic:
                    learn(task, task.now, least_gain=0.02)
                elif len(unit.tasks) == 1:
                    kind = float(servers.kind[next(iter(unit.home))])
                    if task.kind != kind or not task.best >= task.now:
                        task.kind, task.best = kind, task.now
                    task.utilization, task.memory_gib = utilization, memory_gib

    def _place(self, servers: Servers, homeless: list[Unit]) -> list[Unit]:
        """Give homes by Algorithm 1, higher ranks first; return who has to wait for one."""
        waiting = []
        for unit in sorted(homeless, key=lambda u: (tuple(-r for r in u.rank), u.job)):
            home = servers.get_nodes(unit)
            if home is None:
                waiting.append(unit)
            else:
                servers.arrive(unit, home)
        return waiting

    def _migrate(
        self,
        servers: Servers,
        snap: Snapshot,
        memory: Memory,
        held: dict[int, tuple[int, ...]],
    ) -> None:
        at = snap.starts_at
        for unit in servers.blocked():
            servers.leave(unit)
            home = servers.get_nodes(unit)
            assert home is not None, "it had a home before"
            servers.arrive(unit, home)
        if snap.changes != memory.changes:
            move_to_vacated(servers, set(held))
            together(servers)
        settle_s = 10 * self.round_s
        away(servers, at, loss=self.loss, settle_s=settle_s)
        if not servers.overload:
            defragment(servers, part=self.fragmented)
