"""A virtual cluster: carries out the scheduler's commands in virtual time."""

import numpy as np

from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.cluster import Cluster
from fairlead.model.commands import Launch, Renew
from fairlead.model.events import LeasesEnded, Measured, Outcome, Progress
from fairlead.sim.cluster.accounting import Ledger
from fairlead.sim.cluster.copies import Copies
from fairlead.sim.cluster.interference import Sharing
from fairlead.sim.cluster.measurements import Gauge
from fairlead.sim.cluster.progress import JobProgress
from fairlead.sim.cluster.speed_changes import SpeedChanges
from fairlead.sim.physics.true_speeds import Truth
from fairlead.sim.record import Record, Use


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
        self._truth = truth
        self._laws = truth.laws
        self._record = record
        if self._laws is not None:
            record.use = Use()
        self._restore_cost_s = restore_cost_s
        self._checkpoint_s = checkpoint_s
        jobs, laws = record.jobs, truth.laws
        leave_s = np.zeros(len(jobs)) if laws is None else laws.leave_s()
        self._leaving_takes_time = bool(leave_s.any())
        self._pace = JobProgress(jobs, leave_s, slots=2 * len(cluster.node_of))
        self._gauge = Gauge(truth, self._pace, record)
        self._ledger = Ledger(cluster, self._pace, record, self._gauge)
        self._settling = SpeedChanges(self._pace, self._ledger, checkpoint_s=checkpoint_s)
        self._sharing = Sharing(truth, self._pace, self._settling, checkpoint_s=checkpoint_s)
        self._copies = Copies(
            truth,
            self._pace,
            record,
            restore_cost_s=restore_cost_s,
            checkpoint_s=checkpoint_s,
        )

    def next_finish_at(self) -> float:
        """Return when the next job finishes, infinite if none does under its present lease.

        To be asked after all that happens at one instant, before time goes on.
        """
        self._sharing.update_speeds()
        at = self._pace.next_finish_at()
        return min(at, self._copies.next_at()) if len(self._copies) else at

    def finish(self, at: float) -> tuple[int | None, LeasesEnded]:
        """End the lease of the job that finishes now; return its number with the event.

        Where only a copy has made its part, no job has finished.
        """
        if len(self._copies) and self._copies.next_at() <= at:
            return self._copies.finish(at)
        job, lease = self._pace.pop_next_finish()
        self._record.finished_at[job] = at
        return job, self._end(np.array([lease]), at, "finished")

    def launch(self, command: Launch, at: float) -> None:
        """Start jobs on their devices."""
        units, pace = command.on, self._pace
        if np.count_nonzero(units.copy):
            copy = units.copy > 0
            self._copies.launch(Launch(command.lease[copy], units.where(copy), command.until), at)
            if copy.all():
                return
            command = Launch(command.lease[~copy], units.where(~copy), command.until)
            units = command.on
        job, entry = units.job, self._truth.entry(units)
        rate = self._truth.speed(units, entry)
        pace.hold(job, command.lease)
        pace.entry[job] = entry
        pace.size[job] = pace.portion[job] = 1 if units.single else units.size
        if not units.single:
            self._ledger.note_gangs(units)
        pace.held_from[job] = at
        pace.works_from[job] = works_from = self._note_start(job, units.first, at)
        if self._laws is None:
            pace.rate[job] = rate
            time = (pace.total[job] - pace.done[job]) / rate
        else:
            pace.rate[job] = rate * self._laws.working(job, self._checkpoint_s)
            time = pace.time_left(job)
        pace.finish_at[job] = works_from + time
        pace.until = command.until
        pace.expect(job, command.until)
        self._sharing.start(command, at)

    def _note_start(self, job: IntArray, first: IntArray, at: float) -> FloatArray | float:
        """Note where jobs start; return when they begin to work."""
        record, before = self._record, self._pace.first[job]
        self._pace.first[job] = first
        record.migrations[job] += before != first
        restored_at = at + self._restore_cost_s
        if before[before.argmin()] >= 0 and self._laws is None:
            return restored_at
        fresh = before < 0
        record.started_at[job[fresh]] = at
        record.migrations[job[fresh]] = 0
        works_from = np.where(fresh, at, restored_at)
        if self._laws is not None:
            works_from += self._laws.start_s(job, before, first)
        return works_from

    def renew(self, command: Renew) -> None:
        """Let leases go on."""
        lease = command.lease
        self._pace.until = command.until
        if len(self._copies):
            lease = lease[~self._copies.is_copy(lease)]
        self._pace.expect(self._pace.jobs_of(lease), command.until)

    def suspend(self, lease: IntArray, at: float, outcome: Outcome) -> LeasesEnded:
        """Stop leases that are still open; they have left, or were lost."""
        if not len(self._copies):
            return self._end(lease, at, outcome)
        copy = self._copies.is_copy(lease)
        ended = self._copies.suspend(lease[copy], at, outcome)
        if copy.all():
            return ended
        rest = self._end(lease[~copy], at, outcome)
        both = np.concatenate([ended.lease, rest.lease])
        return LeasesEnded(at, both, np.concatenate([ended.steps, rest.steps]), outcome)

    @property
    def frees_devices_at_once(self) -> bool:
        """Whether devices are free the moment that their leases are told to leave.

        They are where jobs are forked: merging takes no time of its own.
        """
        return not self._leaving_takes_time or len(self._copies) > 0

    def leave(self, lease: IntArray, at: float) -> list[tuple[float, IntArray]]:
        """Let leases make no more steps; return when which of them give up their devices.

        Whoever has made all steps finishes by itself instead.
        """
        pace = self._pace
        job = pace.jobs_of(lease)
        made = pace.finish_at[job] - pace.leave_s[job] <= at
        pace.expect(job[made], np.inf)
        lease, job = lease[~made], job[~made]
        if not len(job):
            return []
        self._settling.leave(job, at)
        free_at = at + pace.leave_s[job]
        return [(float(when), lease[free_at == when]) for when in np.unique(free_at)]

    def settle(self, at: float) -> None:
        """Enter into the record what jobs have done and held until now under open leases."""
        running = self._pace.running()
        if len(running):
            self._settling.settle(running, at)
        self._copies.settle(at)

    def _end(self, lease: IntArray, at: float, outcome: Outcome) -> LeasesEnded:
        pace = self._pace
        job = pace.jobs_of(lease)
        if outcome == "finished":
            after = pace.total[job]
        else:
            self._record.preemptions[job] += 1
            worked = np.maximum(at - pace.works_from[job], 0.0)
            if outcome == "lost":
                worked = np.floor(worked / self._checkpoint_s) * self._checkpoint_s
            after = pace.done[job] + worked * pace.rate[job]
            if outcome == "lost":
                self._settling.restore_checkpointed_steps(job, at, after)
        self._ledger.enter(job, at, after)
        if self._record.intervals is not None:
            began = self._settling.held_from(job)
            self._record.intervals.add(job, pace.first[job], pace.size[job], began, at)
        pace.lease[job] = -1
        self._settling.forget(job)
        self._sharing.end(job, at)
        return LeasesEnded(at, lease, after, outcome)

    def progress(self, at: float) -> Progress | None:
        """Return how far the running jobs are."""
        job = self._pace.running()
        if not len(job) and not len(self._copies):
            return None
        lease, steps = self._pace.lease[job], self._pace.made(job, at)
        if len(self._copies):
            copies, made = self._copies.progress(at)
            lease, steps = np.concatenate([lease, copies]), np.concatenate([steps, made])
        return Progress(at, lease, steps)

    def measured(self, at: float) -> list[Measured]:
        """Return what running jobs have measured of themselves by now."""
        return self._gauge.measured(at)
