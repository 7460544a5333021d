"""Columns of the virtual cluster for rounds in which jobs of one device take turns."""

from fairlead.mechanisms._tickets import turn_run as t
from fairlead.mechanisms._tickets.turn_run import TurnRun
from fairlead.model.arrays import FloatArray, IntArray
from fairlead.sim.cluster.accounting import ProgressLedger
from fairlead.sim.cluster.interference import DeviceSharing
from fairlead.sim.cluster.measurements import SelfMeasurement
from fairlead.sim.cluster.progress import JobProgress
from fairlead.sim.record import Record


class TurnColumns:
    """Reads the rows of jobs from the virtual cluster, and writes them after some rounds."""

    def __init__(
        self,
        progress: JobProgress,
        record: Record,
        ledger: ProgressLedger,
        sharing: DeviceSharing,
        measurement: SelfMeasurement,
        speed: FloatArray,
    ) -> None:
        self._progress, self._record, self._ledger = progress, record, ledger
        self._sharing, self._measurement = sharing, measurement
        self._speed = speed
        """jobs × accelerators → steps per second on one device"""
        self._numbers = (
            (t.HELD_FROM, progress.held_from),
            (t.PROGRESS_FROM, progress.progress_from),
            (t.RATE, progress.rate),
            (t.DONE, progress.done),
            (t.FINISH_AT, progress.finish_at),
            (t.STARTED_AT, record.started_at),
            (t.FIRST_STEPS_AT, record.first_steps_at),
        )
        self._ints = (
            (t.FIRST, progress.first),
            (t.PREEMPTIONS, record.preemptions),
            (t.MIGRATIONS, record.migrations),
        )

    def have_whole_devices(self) -> bool:
        """Return whether no two jobs have shared a device or have devices of several kinds."""
        return self._sharing.is_unshared and not self._ledger.has_mixed_gangs

    def read(self, run: TurnRun, job: IntArray) -> None:
        """Fill the columns of these jobs."""
        for column, values in self._numbers:
            values.take(job, out=run.numbers[column])
        for column, values in self._ints:
            values.take(job, out=run.ints[column])
        self._progress.total.take(job, out=run.numbers[t.TOTAL])
        run.numbers[t.UTILIZATION : t.MEMORY + 1] = self._measurement.declared[job].T
        self._record.device_s.take(job, axis=0, out=run.times[t.DEVICE_S])
        self._speed.take(job, axis=0, out=run.times[t.SPEED])
        run.counts[t.EARLY] = self._ledger.early
        run.clock[t.ENDED_AT] = self._record.ended_at

    def write(self, run: TurnRun, job: IntArray, until: float) -> None:
        """Take the rows over, and schedule the completions until then."""
        progress = self._progress
        for column, values in self._numbers:
            values[job] = run.numbers[column]
        for column, values in self._ints:
            values[job] = run.ints[column]
        self._record.device_s[job] = run.times[t.DEVICE_S]
        self._ledger.early = int(run.counts[t.EARLY])
        self._record.ended_at = float(run.clock[t.ENDED_AT])
        self._record.rounds += int(run.counts[t.ROUNDS])
        progress.lease[job] = -1
        rows = (run.ints[t.LEASE] >= 0).nonzero()[0]
        running, lease, device = job[rows], run.ints[t.LEASE][rows], run.ints[t.DEVICE][rows]
        progress.set_leases(running, lease)
        progress.entry[running] = running * self._speed.shape[1] + run.accelerator_of[device]
        progress.size[running] = progress.portion[running] = 1
        progress.until = until
        progress.schedule_finish(running, until)
        self._sharing.note_single_leases(device, lease)
