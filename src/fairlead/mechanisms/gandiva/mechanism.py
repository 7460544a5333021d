"""Gandiva: introspective scheduling by time slices, packing and migration (OSDI 2018)."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fairlead.mechanisms.gandiva.grow_shrink import learn, resize
from fairlead.mechanisms.gandiva.memory import (
    GandivaJob,
    GandivaMemory,
    GandivaUnit,
    new_measurements,
    tasks_of,
)
from fairlead.mechanisms.gandiva.migration import (
    consolidate_units,
    defragment,
    move_from_neighbours,
    move_to_vacated,
)
from fairlead.mechanisms.gandiva.packing import Measurements, conclude_trials, start_trials, unpack
from fairlead.mechanisms.gandiva.servers import Servers, home_of
from fairlead.mechanisms.gandiva.time_slices import (
    held_devices,
    on_devices,
    record_unit_weight,
    select_units,
)
from fairlead.model.arrays import IntArray
from fairlead.model.capabilities import Capabilities
from fairlead.model.lease import NO_PLACEMENTS, Placements
from fairlead.model.plan import Plan
from fairlead.model.snapshot import Snapshot
from fairlead.placement import plan_transition


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
    """seconds without change on a server before jobs grow beyond their gang there"""

    capabilities: ClassVar[Capabilities] = Capabilities(
        starvation_free=True, reads_progress=False, reads_measured=True
    )

    def initial(self) -> GandivaMemory:
        """Return a memory without jobs."""
        return GandivaMemory.empty()

    def plan(self, snap: Snapshot, memory: GandivaMemory) -> tuple[Plan, GandivaMemory]:
        """Return this slice: new jobs get homes, trials are concluded, all units take turns."""
        at, until = snap.starts_at, snap.starts_at + self.round_s
        tasks, news = tasks_of(snap, memory), new_measurements(snap, memory)
        held = held_devices(snap)
        servers = Servers(snap)
        units = self._restored_units(servers, memory, tasks, held)
        self._learn(servers, units, news)
        failed = set(memory.failed)
        homeless = [GandivaUnit([task]) for task in self._without(units, tasks)]
        homeless += conclude_trials(units, news, failed)
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
        stop, start = plan_transition(snap, on_devices(servers, chosen, held))
        after = GandivaMemory.of(snap, [*units, *waiting], failed, servers.load, changed_at)
        return Plan(stop, start, until, until), after

    def refill(self, snap: Snapshot, memory: GandivaMemory, idle: IntArray) -> Placements:
        """Return jobs for devices that fall idle: next in turn there, then new ones."""
        tasks, held = tasks_of(snap, memory), held_devices(snap)
        servers = Servers(snap)
        units = self._restored_units(servers, memory, tasks, held)
        holding = set(snap.job[snap.holds[snap.holds >= 0]].tolist())
        servers.by_devices = [idle[servers.of_device[idle] == s] for s in range(len(servers.size))]
        new = [
            GandivaUnit([task]) for task in self._without(units, tasks) if task.job not in holding
        ]
        # New jobs take spare devices only; no job is moved or shrunk in mid-slice.
        for unit in sorted(new, key=lambda u: (tuple(-r for r in u.rank), u.job)):
            home = servers.get_nodes(unit)
            taken = servers.load + servers.extra
            if home and all(taken[s] + count <= servers.size[s] for s, count in home.items()):
                servers.assign_home(unit, home)
        waits = [
            unit
            for unit in servers.all_units()
            if not any(task.job in holding for task in unit.tasks)
        ]
        servers.size = np.array([len(devices) for devices in servers.by_devices])
        for unit in waits:
            unit.tasks[0].size = float(unit.need)
        placements = on_devices(servers, select_units(servers, waits), {})
        return Placements.of(placements) if placements else NO_PLACEMENTS

    # -- from plan to plan ----------------------------------------------------------------------

    def _restored_units(
        self,
        servers: Servers,
        memory: GandivaMemory,
        tasks: dict[int, GandivaJob],
        held: dict[int, tuple[int, ...]],
    ) -> list[GandivaUnit]:
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
            # A job that has lost a partner is measured again, and its trial ends.
            whole = len(mine) == len(jobs)
            unit = GandivaUnit(mine, {}, total, int(joined), bar) if whole else GandivaUnit(mine)
            servers.assign_home(unit, dict(home))
            units.append(unit)
        known = {task.job for unit in units for task in unit.tasks}
        for job, devices in held.items():
            if job not in known:
                unit = GandivaUnit([tasks[job]])
                servers.join_home(unit, home_of(servers, unit, devices))
                units.append(unit)
        for unit in units:
            task = unit.tasks[0]
            if task.elastic and len(unit.home) == 1:
                (server,) = unit.home
                servers.extra[server] += max(int(task.size) - task.floor, 0)
        return units

    @staticmethod
    def _without(units: Iterable[GandivaUnit], tasks: dict[int, GandivaJob]) -> list[GandivaJob]:
        homed = {task.job for unit in units for task in unit.tasks}
        return [task for job, task in tasks.items() if job not in homed]

    def _learn(self, servers: Servers, units: list[GandivaUnit], news: Measurements) -> None:
        """Record the jobs' measurements: their best speed alone and their current speed."""
        for unit in units:
            for task in unit.tasks:
                if task.job not in news:
                    continue
                task.current_speed, utilization, memory_gib = news[task.job]
                if task.elastic:
                    learn(task, task.current_speed, least_gain=0.02)
                elif len(unit.tasks) == 1:
                    accelerator = float(servers.accelerator[next(iter(unit.home))])
                    if (
                        task.accelerator != accelerator
                        or not task.best_speed >= task.current_speed
                    ):
                        task.accelerator, task.best_speed = accelerator, task.current_speed
                    task.utilization, task.memory_gib = utilization, memory_gib

    def _place(self, servers: Servers, homeless: list[GandivaUnit]) -> list[GandivaUnit]:
        """Assign homes by Algorithm 1, higher ranks first; return the units that have to wait."""
        waiting = []
        for unit in sorted(homeless, key=lambda u: (tuple(-r for r in u.rank), u.job)):
            home = servers.get_nodes(unit)
            if home is None:
                waiting.append(unit)
            else:
                servers.join_home(unit, home)
        return waiting

    def _migrate(
        self,
        servers: Servers,
        snap: Snapshot,
        memory: GandivaMemory,
        held: dict[int, tuple[int, ...]],
    ) -> None:
        at = snap.starts_at
        for unit in servers.blocked():
            servers.remove_home(unit)
            home = servers.get_nodes(unit)
            assert home is not None, "it had a home before"
            servers.join_home(unit, home)
        if snap.changes != memory.changes:
            move_to_vacated(servers, set(held))
            consolidate_units(servers)
        settle_s = 10 * self.round_s
        move_from_neighbours(servers, at, loss=self.loss, settle_s=settle_s)
        if not servers.overload:
            defragment(servers, part=self.fragmented)
