"""Gandiva: introspective scheduling by time slices, packing and migration (OSDI 2018)."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np

from fairlead.mechanisms.gandiva.changed_slices import changed_slice
from fairlead.mechanisms.gandiva.gang_reason import gang_reason
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
from fairlead.mechanisms.gandiva.packing import (
    Measurements,
    conclude_trials,
    start_trials,
    unfit_pairs,
    unpack,
)
from fairlead.mechanisms.gandiva.quiet_slices import Thresholds, quiet_slice, unchanged_units
from fairlead.mechanisms.gandiva.repeated_slices import memory_after_repeats, repeated_units
from fairlead.mechanisms.gandiva.servers import Servers, has_room, home_of
from fairlead.mechanisms.gandiva.time_slices import (
    held_devices,
    on_devices,
    record_unit_weight,
    select_units,
)
from fairlead.mechanisms.gandiva.turn_slices import SliceTurns, turn_slice
from fairlead.mechanisms.gandiva.waiting import waiting_singles, waiting_units
from fairlead.model.arrays import NO_INTS, FloatArray, IntArray
from fairlead.model.capabilities import Capabilities
from fairlead.model.lease import NO_PLACEMENTS, Placements
from fairlead.model.plan import ABSENT, Plan
from fairlead.model.snapshot import Snapshot
from fairlead.placement import running_leases
from fairlead.policies.base import WarmStart


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

    alone: ClassVar[Capabilities] = Capabilities(
        starvation_free=True, reads_progress=False, reads_measured=True
    )
    """capabilities without packing"""
    shared: ClassVar[Capabilities] = replace(alone, packs=True)

    @property
    def capabilities(self) -> Capabilities:
        """Reads what jobs measure, and packs them by option."""
        return self.shared if self.packing else self.alone

    def initial(self) -> GandivaMemory:
        """Return a memory without jobs."""
        return GandivaMemory.empty()

    def plan(self, snap: Snapshot, memory: GandivaMemory) -> tuple[Plan, GandivaMemory]:
        """Return this slice: new jobs get homes, trials are concluded, all units take turns."""
        at, until = snap.starts_at, snap.starts_at + self.round_s
        servers = Servers(snap)
        unchanged = unchanged_units(snap, memory, servers)
        if unchanged is not None:
            same = quiet_slice(unchanged, memory, self._thresholds)
            if same is not None:
                return Plan(NO_INTS, NO_PLACEMENTS, until, until), same
            turns = turn_slice(unchanged, memory, self._thresholds, until)
            if turns is not None:
                return turns
        changed = changed_slice(snap, memory, servers, self._thresholds, until)
        if changed is not None:
            return changed
        tasks, news = tasks_of(snap, memory), new_measurements(snap, memory)
        running = running_leases(snap)
        held = held_devices(running)
        units = self._restored_units(servers, memory, tasks, held)
        self._learn(servers, units, news)
        failed = set(memory.failed) | unfit_pairs(snap)
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
        stable = servers.load[:known] == memory.load
        changed_at[:known][stable] = memory.changed_at[stable]
        idle = self.growth and not waiting and not servers.overload
        resize(servers, changed_at, at, grow_after_s=self.grow_after_s, idle=idle)
        units = list(servers.all_units())
        chosen = select_units(servers, units)
        record_unit_weight(units)
        continuing, start = on_devices(servers, chosen, held)
        stop = [
            lease for lease, (job, devices) in running.items() if continuing.get(job) != devices
        ]
        after = GandivaMemory.of(snap, [*units, *waiting], failed, servers.load, changed_at)
        ending = np.array(stop, dtype=np.int64)
        return Plan(ending, Placements.of(start), until, until), after.with_hidden(memory)

    def repeated_rounds(
        self, snap: Snapshot, memory: GandivaMemory
    ) -> Callable[[FloatArray, FloatArray], tuple[int, GandivaMemory]] | None:
        """Return the memory after quiet slices as a function; None if a slice may not be quiet."""
        if (snap.on == ABSENT).any():
            return None
        members = repeated_units(snap, memory, self._thresholds)
        return None if members is None else partial(memory_after_repeats, members, memory)

    def turn_rounds(
        self, warm: WarmStart, snap: Snapshot, memory: GandivaMemory, device: IntArray
    ) -> SliceTurns | None:
        """Return the slices that follow while units of one device take turns in overload."""
        del warm
        return SliceTurns.of(snap, memory, self._thresholds, device)

    def refill(self, snap: Snapshot, memory: GandivaMemory, idle: IntArray) -> Placements:
        """Return jobs for devices that fall idle: next in turn there, then new ones."""
        servers = Servers(snap)
        jobs = snap.job.tolist()
        room = np.bincount(servers.of_device[idle], minlength=len(servers.size))
        holding = set(snap.job[snap.holds[snap.holds >= 0]].tolist())
        waiting = waiting_singles(memory, snap, servers.size, room) or waiting_units(
            memory, servers.size.tolist(), room.tolist(), holding, set(jobs)
        )
        ready = {job for members, _ in waiting.ready for job in members}
        known = waiting.homed | holding
        rows = [row for row, job in enumerate(jobs) if job in ready or job not in known]
        tasks = tasks_of(snap, memory, np.array(rows, dtype=np.int64))
        units = [
            GandivaUnit([tasks[job] for job in members if job in tasks], dict(home))
            for members, home in waiting.ready
        ]
        new = [GandivaUnit([task]) for job, task in tasks.items() if job not in waiting.homed]
        spare = np.bincount(servers.accelerator, np.maximum(servers.size - waiting.load, 0))
        if any(unit.need <= spare.max() for unit in new):
            units += self._place_in_mid_slice(snap, memory, new)
        for unit in units:
            unit.tasks[0].size = float(unit.need)
        servers.size, servers.usable = room, idle
        _, placements = on_devices(servers, select_units(servers, units), {})
        return Placements.of(placements) if placements else NO_PLACEMENTS

    def _place_in_mid_slice(
        self, snap: Snapshot, memory: GandivaMemory, new: list[GandivaUnit]
    ) -> list[GandivaUnit]:
        """Assign homes on spare devices; no job is moved or shrunk. Return the units with one."""
        servers = Servers(snap)
        held = held_devices(running_leases(snap))
        self._restored_units(servers, memory, tasks_of(snap, memory), held)
        for unit in sorted(new, key=_by_rank):
            home = servers.get_nodes(unit)
            taken = servers.load + servers.extra
            if home and all(taken[s] + count <= servers.size[s] for s, count in home.items()):
                servers.assign_home(unit, home)
        return [unit for unit in new if unit.home]

    def gang_reason(self, snap: Snapshot, memory: GandivaMemory, job: int) -> str:
        """Return why a running elastic job has its present size; empty for all other jobs."""
        return gang_reason(snap, memory, job, growth=self.growth, grow_after_s=self.grow_after_s)

    @property
    def _thresholds(self) -> Thresholds:
        kept = 1.0 - self.loss
        return Thresholds(
            slow=kept if self.packing else None,
            disturbed=kept if self.migration else None,
            fragmented=self.fragmented,
            settle_s=self._settle_s,
        )

    @property
    def _settle_s(self) -> float:
        """Seconds after a move away from neighbours before a job moves again."""
        return 10 * self.round_s

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
        size = servers.size.tolist()
        units = []
        for jobs, home, (total, joined, bar) in zip(
            memory.units, memory.homes, memory.trials.tolist(), strict=True
        ):
            mine = list(filter(None, map(tasks.get, jobs)))
            if not mine or not has_room(size, home):
                continue
            # A job that has lost a partner is measured again, and its trial ends.
            whole = len(mine) == len(jobs)
            trial = (total, int(joined), bar) if whole else ()
            units.append(GandivaUnit(mine, dict(home), *trial))
        servers.restore_homes(units)
        known = {task.job for unit in units for task in unit.tasks}
        for job, devices in held.items():
            if job not in known:
                task = tasks[job]
                unit = GandivaUnit([task])
                if len(devices) > task.gang:  # it grew under an earlier config
                    task.size = float(len(devices))
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
        accelerators = servers.accelerator.tolist()
        for unit in units:
            for task in unit.tasks:
                measured = news.get(task.job)
                if measured is None:
                    continue
                task.current_speed, utilization, memory_gib = measured
                if task.elastic:
                    learn(task, task.current_speed, least_gain=0.02)
                elif len(unit.tasks) == 1:
                    accelerator = float(accelerators[next(iter(unit.home))])
                    if (
                        task.accelerator != accelerator
                        or not task.best_speed >= task.current_speed
                    ):
                        task.accelerator, task.best_speed = accelerator, task.current_speed
                    task.utilization, task.memory_gib = utilization, memory_gib

    def _place(self, servers: Servers, homeless: list[GandivaUnit]) -> list[GandivaUnit]:
        """Assign homes by Algorithm 1, higher ranks first; return the units that have to wait."""
        waiting = []
        for unit in sorted(homeless, key=_by_rank):
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
        move_from_neighbours(servers, at, loss=self.loss, settle_s=self._settle_s)
        if not servers.overload:
            defragment(servers, part=self.fragmented)


def _by_rank(unit: GandivaUnit) -> tuple[float, float, int]:
    """Return a key that sorts units by rank, the highest first, then by their first job."""
    tenant, own = unit.rank
    return -tenant, -own, unit.job
