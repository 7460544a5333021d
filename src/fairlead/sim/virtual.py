"""A virtual cluster: carries out the scheduler's commands in virtual time."""

import heapq
from dataclasses import dataclass

import numpy as np

from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.cluster import Cluster
from fairlead.model.commands import Launch, Renew
from fairlead.model.events import LeasesEnded, Measured, Outcome, Progress
from fairlead.model.lease import SLOTS, Placements
from fairlead.sim.copies import Copies
from fairlead.sim.gauge import Gauge
from fairlead.sim.partners import Partners
from fairlead.sim.record import FIRST_STEPS, Record, Use
from fairlead.sim.truth import Truth

_PACE = TOTAL, DONE, RATE, HELD_FROM, WORKS_FROM, FINISH_AT, DEVICES, FIRST, MOVES = range(9)
"""columns: steps to make, steps made as of WORKS_FROM, steps per second, when the lease began,
when progress began (after restoring), when it will finish, devices held, the first of them (-1
before the first start), how often that has changed. When partners come or go, what was done so
far is settled: HELD_FROM and WORKS_FROM then are the time of that, and DEVICES counts a device
shared by n jobs as 1/n."""

_NO_LEASE = -SLOTS
"""no lease's number, and yet its lower digits name a slot"""


@dataclass(slots=True)
class _Settled:
    """What a lease whose partners have changed was like when it began."""

    held_from: float
    works_from: float
    devices: float
    saved: float
    """steps that its last checkpoint holds"""


class VirtualCluster:
    """Jobs that progress at their true speed while they hold devices.

    A job that starts again after it was stopped first spends ``restore_cost_s`` on its devices
    without progress. A job that leaves or finishes has checkpointed; one that is lost falls
    back to its last checkpoint, of which it makes one every ``checkpoint_s``. Jobs that share
    devices run at the speed they have beside their partners, from the moment one starts until it
    ends. Physics adds what starting costs, and what neighbours on other devices do.
    """

    def __init__(
        self,
        cluster: Cluster,
        truth: Truth,
        record: Record,
        *,
        restore_cost_s: float,
        checkpoint_s: float,
    ) -> None:
        n = len(record.jobs)
        self._cluster = cluster
        self._truth = truth
        self._laws = truth.laws
        self._record = record
        if self._laws is not None:
            record.use = Use()
        self._gauge = Gauge(truth, record)
        self._restore_cost_s = restore_cost_s
        self._checkpoint_s = checkpoint_s
        self._pace = np.zeros((n, len(_PACE)))
        """jobs × what decides its progress, side by side: one operation reads or writes a job"""
        self._pace[:, TOTAL] = [job.total_steps for job in record.jobs]
        self._pace[:, FINISH_AT] = np.inf
        self._kind = np.zeros(n, dtype=np.int64)
        self._mixed: dict[int, FloatArray] = {}
        """jobs on several accelerators → part of its devices on each"""
        self._pace[:, FIRST] = -1.0
        self._lease = np.full(n, -1, dtype=np.int64)
        self._job_in = np.full(2 * len(cluster.node_of), -1, dtype=np.int64)
        """lease slot → job"""
        self._last_on = np.full(len(cluster.node_of), _NO_LEASE, dtype=np.int64)
        """device → the lease that started there last; not kept once there are partners"""
        self._partners: Partners | None = None
        """who shares devices, as soon as anybody does, or from the start if neighbours matter"""
        if self._laws is not None and self._laws.crowded:
            self._partners = Partners(np.full(len(cluster.node_of), -1))
        self._touched: set[int] = set()
        """jobs whose partners have changed at this instant, not yet at their new speed"""
        self._touched_at = 0.0
        self._settled: dict[int, _Settled] = {}
        """jobs whose partners have changed during their present lease"""
        self._until = 0.0
        """when the leases given or renewed last end"""
        self._early = n
        """jobs that have not made their first steps"""
        self._finishing: list[tuple[float, int, int]] = []
        """(when, job, lease) of jobs that finish before their lease ends; some are stale"""
        self._copies = Copies(cluster, record, self._pace[:, DONE])
        self._leave_s = np.zeros(n) if self._laws is None else self._laws.leave_s()
        self._leaving: set[int] = set()
        """jobs that were told to leave and are about it"""

    def next_finish_at(self) -> float:
        """Return when the next job finishes, infinite if none does under its present lease.

        To be asked after all that happens at one instant, before time goes on.
        """
        if self._touched:
            self._repace()
        heap = self._finishing
        copy_at = self._copies.next_at() if len(self._copies) else np.inf
        while heap:
            when, job, lease = heap[0]
            if self._lease[job] == lease and self._pace[job, FINISH_AT] == when:
                return min(when, copy_at)
            heapq.heappop(heap)
        return copy_at

    def finish(self, at: float) -> tuple[int | None, LeasesEnded]:
        """End the lease of the job that finishes now; return its number with the event.

        Where only a copy has made its part, no job has finished.
        """
        if len(self._copies) and self._copies.next_at() <= at:
            return self._finish_copies(at)
        _, job, lease = heapq.heappop(self._finishing)
        self._record.finished_at[job] = at
        return job, self._end(np.array([lease]), at, "finished")

    def launch(self, command: Launch, at: float) -> None:
        """Start jobs on their devices."""
        if np.count_nonzero(command.on.copy):
            command = self._launch_copies(command, at)
            if not len(command.lease):
                return
        units = command.on
        single = len(units.device) == len(units)
        job, first = units.job, units.device if single else units.device[units.start[:-1]]
        slot = command.lease & (SLOTS - 1)
        if int(slot.max()) >= len(self._job_in):
            self._job_in = np.concatenate([self._job_in, np.full(int(slot.max()) + 1, -1)])
        if self._partners is None and self._begins_sharing(command):
            self._partners = Partners(self._job_on())
        self._job_in[slot] = job
        self._lease[job] = command.lease
        self._kind[job] = self._cluster.accelerator_of[first]
        if not single:
            self._note_mixed(units)
        pace = self._pace.take(job, axis=0)
        pace[:, RATE] = self._truth.speed(units)
        pace[:, DEVICES] = 1.0 if single else units.size
        pace[:, HELD_FROM] = at
        self._note_start(job, pace, first, at)
        if self._laws is None:
            time = (pace[:, TOTAL] - pace[:, DONE]) / pace[:, RATE]
        else:
            pace[:, RATE] *= self._not_checkpointing(job)
            time = _time_left(pace) + self._leave_s[job]
        pace[:, FINISH_AT] = finish_at = pace[:, WORKS_FROM] + time
        self._pace[job] = pace
        self._until = command.until
        self._note_finishing(job, finish_at, command.until)
        if self._partners is not None:
            self._touched |= self._partners.start(units)
            if self._laws is not None and self._laws.crowded:
                self._touched |= self._partners.near(self._laws.around(units.device))
            self._touched_at = at

    def _begins_sharing(self, command: Launch) -> bool:
        """Tell whether a device gets a second job, for the first time; else note who starts."""
        units, last = command.on, self._last_on
        device = units.device
        lease = command.lease if len(device) == len(units) else command.lease.repeat(units.size)
        if command.apart:
            last[device] = lease
            return False
        before = last[device]
        if np.count_nonzero(self._lease[self._job_in[before & (SLOTS - 1)]] == before):
            return True
        last[device] = lease
        if not np.count_nonzero(last[device] != lease):
            return False
        last[device] = before
        return True

    def _job_on(self) -> IntArray:
        """Return devices → job that holds it, -1 for none, while nobody shares."""
        job: IntArray = self._job_in[self._last_on & (SLOTS - 1)]
        return np.where(self._lease[job] == self._last_on, job, -1)

    def _note_start(self, job: IntArray, pace: FloatArray, first: IntArray, at: float) -> None:
        before = pace[:, FIRST]
        fresh = before < 0
        pace[:, MOVES] += before != first
        pace[:, WORKS_FROM] = at + self._restore_cost_s
        if np.count_nonzero(fresh):
            self._record.started_at[job[fresh]] = at
            pace[fresh, WORKS_FROM] = at
            pace[fresh, MOVES] = 0.0
        if self._laws is not None:
            pace[:, WORKS_FROM] += self._laws.start_s(job, before, first)
        pace[:, FIRST] = first

    def renew(self, command: Renew) -> None:
        """Let leases go on."""
        lease = command.lease
        if len(self._copies):
            lease = lease[~self._copies.are_copies(lease)]
        job = self._job_in[lease & (SLOTS - 1)]
        self._until = command.until
        self._note_finishing(job, self._pace[job, FINISH_AT], command.until)

    def _note_finishing(self, job: IntArray, finish_at: FloatArray, until: float) -> None:
        for i in (finish_at <= until).nonzero()[0].tolist():
            number = int(job[i])
            entry = (float(finish_at[i]), number, int(self._lease[number]))
            heapq.heappush(self._finishing, entry)

    def suspend(self, lease: IntArray, at: float, outcome: Outcome) -> LeasesEnded:
        """Stop leases that are still open; they have left, or were lost."""
        if len(self._copies):
            return self._suspend_copies(lease, at, outcome)
        self._record.preemptions[self._job_in[lease & (SLOTS - 1)]] += 1
        return self._end(lease, at, outcome)

    @property
    def leaves_at_once(self) -> bool:
        """Whether devices are free the moment that their leases are told to leave.

        They are where jobs are forked: merging takes no time of its own.
        """
        return len(self._copies) > 0 or not self._leave_s.any()

    def leave(self, lease: IntArray, at: float) -> list[tuple[float, IntArray]]:
        """Let leases make no more steps; return when which of them give up their devices.

        Whoever has made all steps finishes by itself instead.
        """
        job = self._job_in[lease & (SLOTS - 1)]
        pace = self._pace.take(job, axis=0)
        made = pace[:, FINISH_AT] - self._leave_s[job] <= at
        self._note_finishing(job[made], pace[made, FINISH_AT], np.inf)
        lease, job, pace = lease[~made], job[~made], pace[~made]
        self._settle(job, pace, at)
        pace[:, RATE], pace[:, FINISH_AT] = 0.0, np.inf
        self._pace[job] = pace
        self._leaving.update(job.tolist())
        free_at = at + self._leave_s[job]
        return [(float(when), lease[free_at == when]) for when in np.unique(free_at)]

    def _end(self, lease: IntArray, at: float, outcome: Outcome) -> LeasesEnded:
        job = self._job_in[lease & (SLOTS - 1)]
        pace = self._pace.take(job, axis=0)
        if outcome == "finished":
            after = pace[:, TOTAL].copy()
        else:
            worked = np.maximum(at - pace[:, WORKS_FROM], 0.0)
            if outcome == "lost":
                worked = np.floor(worked / self._checkpoint_s) * self._checkpoint_s
            after = pace[:, DONE] + worked * pace[:, RATE]
            if outcome == "lost":
                self._fall_back(job, pace, at, after)
        if self._early:
            self._note_first_steps(job, pace, after)
        self._credit(job, pace, at)
        if self._record.use is not None:
            self._note_use(job, pace, at)
        if self._record.intervals is not None:
            self._note_interval(job, pace, at)
        pace[:, DONE] = after
        pace[:, FINISH_AT] = np.inf
        self._pace[job] = pace
        self._lease[job] = -1
        ended = job.tolist()
        for number in ended if self._settled else ():
            self._settled.pop(number, None)
            self._leaving.discard(number)
        if self._partners is not None:
            if self._laws is not None and self._laws.crowded:
                held = np.concatenate([self._partners.devices(number) for number in ended])
                self._touched |= self._partners.near(self._laws.around(held))
            self._touched |= self._partners.end(ended)
            self._touched -= set(ended)
            self._touched_at = at
        return LeasesEnded(at, lease, after, outcome)

    def _credit(self, job: IntArray, pace: FloatArray, at: float) -> None:
        record, held = self._record, (at - pace[:, HELD_FROM]) * pace[:, DEVICES]
        if self._mixed:
            for i, number in enumerate(job.tolist()):
                if number in self._mixed:
                    record.device_s[number] += held[i] * self._mixed[number]
                    held[i] = 0.0
        flat = record.device_s.reshape(-1)
        flat[job * record.device_s.shape[1] + self._kind[job]] += held

    def _note_mixed(self, units: Placements) -> None:
        """Note which gangs have devices of several accelerators, and how many of each."""
        kind = self._cluster.accelerator_of[units.device]
        alike = np.logical_and.reduceat(
            kind == kind[units.start[:-1]].repeat(units.size), units.start[:-1]
        )
        for number in units.job[alike].tolist() if self._mixed else ():
            self._mixed.pop(number, None)
        for i in (~alike).nonzero()[0].tolist():
            mine = kind[units.start[i] : units.start[i + 1]]
            counts = np.bincount(mine, minlength=len(self._cluster.accelerators))
            self._mixed[int(units.job[i])] = counts / len(mine)

    def _note_interval(self, job: IntArray, pace: FloatArray, at: float) -> None:
        assert self._record.intervals is not None
        start, devices = pace[:, HELD_FROM].copy(), pace[:, DEVICES].copy()
        for i, number in enumerate(job.tolist()):
            if number in self._settled:
                start[i] = self._settled[number].held_from
                devices[i] = self._settled[number].devices
        first = pace[:, FIRST].astype(np.int64)
        self._record.intervals.add(job, first, devices.astype(np.int64), start, at)

    # -- copies ---------------------------------------------------------------------------------

    def _launch_copies(self, command: Launch, at: float) -> Launch:
        """Start the copies of forked jobs; return what else is to be started."""
        units, copy = command.on, command.on.copy > 0
        mine = Launch(command.lease[copy], units.where(copy), command.until)
        job = mine.on.job
        fresh = self._pace[job, FIRST] < 0
        self._record.started_at[job[fresh]] = at
        works_from = np.where(fresh, at, at + self._restore_cost_s)
        if self._laws is not None:
            works_from += np.where(fresh, 0.0, self._laws.merge_s(job))
        self._copies.launch(mine, self._truth.speed(mine.on), works_from, at)
        self._pace[job, FIRST] = mine.on.device[mine.on.start[:-1]]
        return Launch(command.lease[~copy], units.where(~copy), command.until)

    def _finish_copies(self, at: float) -> tuple[int | None, LeasesEnded]:
        """End the copies of the job that finishes now, or those that have made their part."""
        job, leases = self._copies.done_at(at)
        made = self._copies.end(leases, at, None)
        if job is not None:
            self._pace[job, DONE] = self._pace[job, TOTAL]
            self._record.finished_at[job] = at
        outcome: Outcome = "left" if job is None else "finished"
        return job, LeasesEnded(at, np.array(leases, dtype=np.int64), made, outcome)

    def _suspend_copies(self, lease: IntArray, at: float, outcome: Outcome) -> LeasesEnded:
        """Stop leases some of which may be copies'; copies that are merged are not preempted."""
        copy = self._copies.are_copies(lease)
        mine = lease[copy]
        every = self._checkpoint_s if outcome == "lost" else None
        made = self._copies.end(mine.tolist(), at, every)
        if copy.all():
            return LeasesEnded(at, mine, made, outcome)
        others = lease[~copy]
        self._record.preemptions[self._job_in[others & (SLOTS - 1)]] += 1
        rest = self._end(others, at, outcome)
        steps = np.concatenate([made, rest.steps])
        return LeasesEnded(at, np.concatenate([mine, others]), steps, outcome)

    # -- partners -------------------------------------------------------------------------------

    def _repace(self) -> None:
        """Let jobs whose partners have changed go on at their new speed, their steps kept.

        Partners leave and others come at the same instant, so this waits for both.
        """
        partners = self._partners
        assert partners is not None
        job = np.array(sorted(self._touched), dtype=np.int64)
        self._touched.clear()
        pace = self._pace.take(job, axis=0)
        self._settle(job, pace, self._touched_at)
        for i, number in enumerate(job.tolist()):
            devices, beside = partners.devices(number), partners.beside(number)
            near = self._neighbours(number, devices, beside)
            pace[i, RATE] = self._truth.speed_with(number, devices, beside, near)
            pace[i, DEVICES] = partners.portion(number)
        if self._laws is not None:
            pace[:, RATE] *= self._not_checkpointing(job)
        pace[[number in self._leaving for number in job.tolist()], RATE] = 0.0
        time = _time_left(pace) + self._leave_s[job]
        pace[:, FINISH_AT] = finish_at = pace[:, WORKS_FROM] + time
        self._pace[job] = pace
        self._note_finishing(job, finish_at, self._until)

    def _neighbours(
        self, job: int, devices: IntArray, beside: list[int]
    ) -> list[tuple[int, IntArray]]:
        """Return the jobs on other devices of the same nodes, with their devices."""
        if self._laws is None or not self._laws.crowded:
            return []
        assert self._partners is not None
        near = self._partners.near(self._laws.around(devices)) - {job, *beside}
        return [(other, self._partners.devices(other)) for other in sorted(near)]

    def _settle(self, job: IntArray, pace: FloatArray, at: float) -> None:
        """Enter into the columns what jobs have done until now."""
        for i, number in enumerate(job.tolist()):
            mine = self._settled.get(number)
            if mine is None:
                self._settled[number] = mine = _Settled(
                    *pace[i, [HELD_FROM, WORKS_FROM, DEVICES, DONE]].tolist()
                )
            mine.saved = self._last_checkpoint(mine, pace[i], at)
        worked = np.maximum(at - pace[:, WORKS_FROM], 0.0)
        after = np.minimum(pace[:, DONE] + worked * pace[:, RATE], pace[:, TOTAL])
        if self._early:
            self._note_first_steps(job, pace, after)
        self._credit(job, pace, at)
        if self._record.use is not None:
            self._note_use(job, pace, at)
        pace[:, DONE] = after
        pace[:, HELD_FROM] = at
        pace[:, WORKS_FROM] = np.maximum(pace[:, WORKS_FROM], at)

    def _last_checkpoint(self, settled: _Settled, pace: FloatArray, at: float) -> float:
        """Return the steps that a job's last checkpoint before now holds."""
        every, begin = self._checkpoint_s, settled.works_from
        last_at = begin + max(at - begin, 0.0) // every * every
        if last_at < pace[WORKS_FROM]:
            return settled.saved
        return float(pace[DONE] + (last_at - pace[WORKS_FROM]) * pace[RATE])

    def _fall_back(self, job: IntArray, pace: FloatArray, at: float, after: FloatArray) -> None:
        """Correct the steps that lost jobs go on from, where partners have changed before."""
        for i, number in enumerate(job.tolist()):
            if number in self._settled:
                after[i] = self._last_checkpoint(self._settled[number], pace[i], at)

    def _note_first_steps(self, job: IntArray, pace: FloatArray, after: FloatArray) -> None:
        if not np.count_nonzero(pace[:, DONE] < FIRST_STEPS):
            return  # they made them before, or their copies did
        goal = np.minimum(FIRST_STEPS, pace[:, TOTAL])
        crossed = (after >= goal) & np.isnan(self._record.first_steps_at[job])
        count = np.count_nonzero(crossed)
        if count:
            self._early -= int(count)
            mine = pace[crossed]
            time = (goal[crossed] - mine[:, DONE]) / mine[:, RATE]
            self._record.first_steps_at[job[crossed]] = mine[:, WORKS_FROM] + time

    def close(self) -> None:
        """Enter what was counted beside the progress into the record."""
        self._record.migrations[:] = self._pace[:, MOVES]

    def progress(self, at: float) -> Progress | None:
        """Return how far the running jobs are."""
        job = (self._lease >= 0).nonzero()[0]
        if not len(job) and not len(self._copies):
            return None
        pace = self._pace[job]
        worked = np.maximum(at - pace[:, WORKS_FROM], 0.0)
        steps = np.minimum(pace[:, DONE] + worked * pace[:, RATE], pace[:, TOTAL])
        lease = self._lease[job]
        if len(self._copies):
            copies, made = self._copies.progress(at)
            lease, steps = np.concatenate([lease, copies]), np.concatenate([steps, made])
        return Progress(at, lease, steps)

    # -- what jobs measure ----------------------------------------------------------------------

    def measured(self, at: float) -> list[Measured]:
        """Return what running jobs have measured of themselves by now."""
        job = (self._lease >= 0).nonzero()[0]
        job = job[self._pace[job, WORKS_FROM] < at]
        return [
            self._gauge.report(
                at, int(self._lease[number]), number, rate, int(self._kind[number]), size
            )
            for number, rate, size in zip(
                job.tolist(), self._pace[job, RATE].tolist(), self._sizes(job), strict=True
            )
        ]

    def _sizes(self, job: IntArray) -> list[int]:
        """Return how many devices running jobs hold, shared or not."""
        settled, devices = self._settled, self._pace[job, DEVICES].tolist()
        return [
            round(settled[number].devices if number in settled else held)
            for number, held in zip(job.tolist(), devices, strict=True)
        ]

    def _note_use(self, job: IntArray, pace: FloatArray, at: float) -> None:
        begin, rate = pace[:, WORKS_FROM].tolist(), pace[:, RATE].tolist()
        kinds, sizes = self._kind[job].tolist(), self._sizes(job)
        for number, start, speed, kind, size in zip(
            job.tolist(), begin, rate, kinds, sizes, strict=True
        ):
            self._gauge.note_use(number, start, at, speed, kind, size)

    def _not_checkpointing(self, job: IntArray) -> FloatArray:
        """Return jobs → part of its time that is not spent on regular checkpoints."""
        assert self._laws is not None
        every = self._checkpoint_s
        return np.array([self._laws.checkpointing(number, every) for number in job.tolist()])


def _time_left(pace: FloatArray) -> FloatArray:
    """Return jobs → seconds until it is done at its speed, infinite where it makes no steps."""
    time = np.full(len(pace), np.inf)
    left = pace[:, TOTAL] - pace[:, DONE]
    np.divide(left, pace[:, RATE], out=time, where=pace[:, RATE] > 0)
    return time
