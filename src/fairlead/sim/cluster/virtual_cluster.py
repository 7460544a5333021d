"""Virtual cluster that executes the scheduler's commands in virtual time."""

import numpy as np

from fairlead.model.arrays import FloatArray, IntArray
from fairlead.model.cluster import Cluster
from fairlead.model.commands import Launch, Renew
from fairlead.model.events import JobsMeasured, LeasesEnded, Progress
from fairlead.model.lease import Placements
from fairlead.model.lease_outcome import LoggedOutcome
from fairlead.sim.cluster.accounting import ProgressLedger
from fairlead.sim.cluster.copies import CopyLeases
from fairlead.sim.cluster.interference import DeviceSharing
from fairlead.sim.cluster.measurements import SelfMeasurement
from fairlead.sim.cluster.progress import JobProgress
from fairlead.sim.cluster.restart_costs import RestartMeasurement
from fairlead.sim.cluster.speed_changes import SpeedChanges
from fairlead.sim.cluster.turn_columns import TurnColumns
from fairlead.sim.physics.true_speeds import TrueSpeeds
from fairlead.sim.record import Record, UtilizationLog


class VirtualCluster:
    """Jobs that progress at their true speeds while they hold devices.

    A restarted job first spends ``restore_cost_s`` on its devices without progress. A job that
    leaves or finishes has checkpointed; a lost job restarts from its last regular checkpoint, one
    per ``checkpoint_s``. Jobs that share devices run at their packed speed while they share.
    Physics adds transition costs and the effects of neighbours on other devices.
    """

    def __init__(
        self,
        cluster: Cluster,
        true_speeds: TrueSpeeds,
        record: Record,
        *,
        restore_cost_s: float,
        checkpoint_s: float,
    ) -> None:
        self.accelerators = cluster.accelerators
        self._true_speeds = true_speeds
        self._physics = true_speeds.physics_model
        self._record = record
        if self._physics is not None:
            record.utilization_log = UtilizationLog()
        self.restore_cost_s = restore_cost_s
        self._checkpoint_s = checkpoint_s
        jobs, physics = record.jobs, self._physics
        leave_s = np.zeros(len(jobs)) if physics is None else physics.leave_s()
        self._leaving_takes_time = bool(leave_s.any())
        self._progress = JobProgress(jobs, leave_s, slots=2 * len(cluster.node_of))
        self._measurement = SelfMeasurement(true_speeds, self._progress, record)
        self._ledger = ProgressLedger(cluster, self._progress, record, self._measurement)
        self._speed_changes = SpeedChanges(self._progress, self._ledger, checkpoint_s=checkpoint_s)
        self._sharing = DeviceSharing(
            true_speeds, self._progress, self._speed_changes, checkpoint_s=checkpoint_s
        )
        self.restarts = RestartMeasurement(jobs)
        self._copies = CopyLeases(
            true_speeds,
            self._progress,
            record,
            restore_cost_s=restore_cost_s,
            checkpoint_s=checkpoint_s,
        )

    def turn_columns(self) -> TurnColumns:
        """Return access to the columns of jobs of one device that take turns."""
        return TurnColumns(
            *(self._progress, self._record, self._ledger, self._sharing, self._measurement),
            self._true_speeds.solo_speeds(),
        )

    def next_finish_at(self) -> float:
        """Return the time of the next completion; infinite if no job finishes under its lease.

        Call it after all events of one instant, before the clock advances.
        """
        self._sharing.update_speeds()
        at = self._progress.next_finish_at()
        return min(at, self._copies.next_at()) if len(self._copies) else at

    def first_possible_finish_at(self) -> float:
        """Return when the first job finishes if all leases are renewed; there are no copies."""
        assert not len(self._copies)
        return float(self._progress.finish_at[self._progress.running()].min(initial=np.inf))

    def finish(self, at: float) -> tuple[int | None, LeasesEnded]:
        """End the lease of the job that finishes now; return its number and the event.

        The number is None if only copies have made their steps.
        """
        if len(self._copies) and self._copies.next_at() <= at:
            return self._copies.finish(at)
        job, lease = self._progress.pop_next_finish()
        self._record.finished_at[job] = at
        return job, self._end(np.array([lease]), at, "finished")

    def launch(self, command: Launch, at: float) -> None:
        """Start jobs on their devices."""
        units, progress = command.on, self._progress
        if np.count_nonzero(units.copy):
            copy = units.copy > 0
            self._copies.launch(Launch(command.lease[copy], units.where(copy), command.until), at)
            if copy.all():
                return
            command = Launch(command.lease[~copy], units.where(~copy), command.until)
            units = command.on
        job, entry = units.job, self._true_speeds.entry(units)
        rate = self._true_speeds.speed(units, entry)
        progress.set_leases(job, command.lease)
        progress.entry[job] = entry
        progress.size[job] = progress.portion[job] = 1 if units.single else units.size
        if not units.single:
            self._ledger.record_mixed_gangs(units)
        progress.held_from[job] = at
        progress.progress_from[job] = progress_from = self._record_start(job, units.first, at)
        if self._physics is None:
            progress.rate[job] = rate
            time = (progress.total[job] - progress.done[job]) / rate
        else:
            rate *= self._physics.working_fraction(job, self._checkpoint_s)
            self._physics.replay(job, units.first, rate, progress.leave_s)
            progress.rate[job] = rate
            time = progress.time_left(job)
        progress.finish_at[job] = progress_from + time
        progress.until = command.until
        progress.schedule_finish(job, command.until)
        self._sharing.start(command, at)

    def _record_start(self, job: IntArray, first: IntArray, at: float) -> FloatArray | float:
        """Record starts and migrations; return the time at which progress begins."""
        record, before = self._record, self._progress.first[job]
        self._progress.first[job] = first
        record.migrations[job] += before != first
        restored_at = at + self.restore_cost_s
        if before[before.argmin()] >= 0 and self._physics is None:
            self.restarts.record(job, np.full(len(job), self.restore_cost_s))
            return restored_at
        fresh = before < 0
        cost_s = np.full(len(job), self.restore_cost_s)
        record.started_at[job[fresh]] = at
        record.migrations[job[fresh]] = 0
        progress_from = np.where(fresh, at, restored_at)
        if self._physics is not None:
            prepared = self._progress.prepared[job]
            start_s = self._physics.start_s(job, before, first, prepared)
            progress_from += start_s
            cost_s += start_s
        self.restarts.record(job[~fresh], cost_s[~fresh])
        return progress_from

    def prepare(self, units: Placements) -> None:
        """Prepare the processes of jobs that a plan will start on one device; end all others.

        Jobs that share devices or have copies start without preparation.
        """
        if self._physics is None:
            return
        prepared = self._progress.prepared
        prepared[:] = -1
        alone = (units.size == 1) & (units.copy == 0)
        job, device = units.job[alone], units.first[alone]
        _, inverse, uses = np.unique(device, return_inverse=True, return_counts=True)
        once = uses[inverse] == 1
        prepared[job[once]] = device[once]

    def left_devices(self, jobs: IntArray) -> dict[int, int]:
        """Return job → first device of its last lease, of those jobs that have had one."""
        first = self._progress.first[jobs]
        return dict(zip(jobs[first >= 0].tolist(), first[first >= 0].tolist(), strict=True))

    def renew(self, command: Renew) -> None:
        """Renew leases."""
        lease = command.lease
        self._progress.until = command.until
        if len(self._copies):
            lease = lease[~self._copies.is_copy(lease)]
        self._progress.schedule_finish(self._progress.jobs_of(lease), command.until)

    def end_leases(self, lease: IntArray, at: float, outcome: LoggedOutcome) -> LeasesEnded:
        """End open leases with the outcome left or lost."""
        if not len(self._copies):
            return self._end(lease, at, outcome)
        copy = self._copies.is_copy(lease)
        ended = self._copies.end_leases(lease[copy], at, outcome)
        if copy.all():
            return ended
        rest = self._end(lease[~copy], at, outcome)
        both = np.concatenate([ended.lease, rest.lease])
        return LeasesEnded(at, both, np.concatenate([ended.steps, rest.steps]), outcome)

    @property
    def frees_devices_at_once(self) -> bool:
        """Whether preempted leases free their devices at once.

        Always the case for forked jobs: merging takes no extra time.
        """
        return not self._leaving_takes_time or len(self._copies) > 0

    def start_leaving(self, lease: IntArray, at: float) -> list[tuple[float, IntArray]]:
        """Stop the progress of leases; return (time, leases) at which they free their devices.

        Jobs that have made all their steps finish normally instead.
        """
        progress = self._progress
        job = progress.jobs_of(lease)
        made = progress.finish_at[job] - progress.leave_s[job] <= at
        progress.schedule_finish(job[made], np.inf)
        lease, job = lease[~made], job[~made]
        if not len(job):
            return []
        self._speed_changes.start_leaving(job, at)
        free_at = at + progress.leave_s[job]
        return [(float(when), lease[free_at == when]) for when in np.unique(free_at)]

    def credit_running(self, at: float) -> None:
        """Credit running jobs with their steps and device time so far."""
        running = self._progress.running()
        if len(running):
            self._speed_changes.record_progress(running, at)
        self._copies.credit_running(at)

    def _end(self, lease: IntArray, at: float, outcome: LoggedOutcome) -> LeasesEnded:
        progress = self._progress
        job = progress.jobs_of(lease)
        if outcome == "finished":
            after = progress.total[job]
        else:
            self._record.preemptions[job] += 1
            worked = np.maximum(at - progress.progress_from[job], 0.0)
            if outcome == "lost":
                worked = np.floor(worked / self._checkpoint_s) * self._checkpoint_s
            after = progress.done[job] + worked * progress.rate[job]
            if outcome == "lost":
                self._speed_changes.restore_checkpointed_steps(job, at, after)
        self._ledger.credit(job, at, after)
        if self._record.intervals is not None:
            began = self._speed_changes.held_from(job)
            self._record.intervals.add(job, progress.first[job], progress.size[job], began, at)
        progress.lease[job] = -1
        self._speed_changes.forget(job)
        self._sharing.end(job, at)
        return LeasesEnded(at, lease, after, outcome)

    def progress(self, at: float) -> Progress | None:
        """Return the steps of the running jobs; None if none runs."""
        job = self._progress.running()
        if not len(job) and not len(self._copies):
            return None
        lease, steps = self._progress.lease[job], self._progress.steps_at(job, at)
        if len(self._copies):
            copies, made = self._copies.progress(at)
            lease, steps = np.concatenate([lease, copies]), np.concatenate([steps, made])
        return Progress(at, lease, steps)

    def steps(self, at: float) -> FloatArray:
        """Return jobs → steps that it has made; those of copies count once their leases end."""
        steps, running = self._progress.done.copy(), self._progress.running()
        steps[running] = self._progress.steps_at(running, at)
        return steps

    def leases(self) -> frozenset[int]:
        """Return the leases of all running jobs and copies."""
        progress = self._progress
        return self._copies.leases.union(progress.lease[progress.running()].tolist())

    def running_and_ready_at(self) -> tuple[int, float]:
        """Return how many jobs run whose steps are known, and when the last has restarted.

        Steps of copies count once their leases end, so that the number is 0 where copies run.
        """
        running = self._progress.running()
        if len(self._copies):
            return 0, 0.0
        return len(running), float(self._progress.progress_from[running].max(initial=0.0))

    def starting_leases(self, at: float, applied_at: float) -> IntArray:
        """Return the leases that a plan of now must leave in place when it is applied.

        They have not started yet, or will not have trained for as long as their start took.
        Leases of copies are not among them.
        """
        return self._progress.starting(at, applied_at)

    def measured(self, at: float) -> JobsMeasured:
        """Return the measurements of all running jobs."""
        return self._measurement.measured(at)
