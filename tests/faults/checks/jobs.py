"""Invariants of job processes, keepers and checkpoints."""

import os
from collections.abc import Iterable
from typing import Any

from tests.faults.checks.copies import CopyChecks, copy_of, is_copy
from tests.faults.machine.machine import Process
from tests.faults.record import CHECKPOINT_S, CopyTruth, RunRecord, chain

from fairlead.job import FAILED_TO_SAVE, LEFT, checkpoint
from fairlead.job.state_format import decode_state

_ENDS_S = 4.0
"""seconds within which a member reports its last saved step and ends"""
_NOTICES_S = 2.0
"""seconds that a member may continue after its lease or a blocking call: one retry"""
_RENEWS_S = 0.5
"""seconds by which a renewal may be late"""
_FLUSHED_S = 0.5
"""seconds that a slow disk may take to flush a checkpoint's rename"""
_LATE_S = 7.0
"""seconds beyond their grace period that members may outlive one of their gang"""


class JobChecks:
    """Checks every replaced file and every start, step and end of a process."""

    def __init__(self, record: RunRecord, copies: CopyChecks) -> None:
        self._record, self._require, self._copies = record, record.require, copies

    # -- checkpoints ----------------------------------------------------------------------------

    def replaced(self, path: str, me: Process | None) -> None:
        """Check a file of a checkpoint directory that has just been replaced."""
        directory, name = os.path.split(path)
        if name not in ("fence", "latest.json"):
            return
        copy = copy_of(directory)
        job_id = copy[0] if copy is not None else directory.split(os.sep)[-2]
        job = self._record.truth[job_id]
        if name == "fence":
            fence = checkpoint.fence(directory)
            fenced = job if copy is None else job.parts.setdefault(copy[1], CopyTruth())
            self._require(fence >= fenced.fence, f"the fence of {directory} fell to {fence}")
            fenced.fence = fence
            return
        if copy is not None:
            self._copies.saved_part(directory, me)
            return
        latest = checkpoint.latest(directory)
        assert latest is not None
        if me is None:
            self._copies.merged(job_id, latest)
            return
        label = f"lease {latest.lease} at step {latest.steps}"
        self._require(latest.lease == me.lease, f"{label}: committed by lease {me.lease}")
        self._require(latest.lease >= job.fence, f"{label}: committed below fence {job.fence}")
        self._require(latest.steps >= job.committed, f"{label}: {job.committed} were committed")
        self._require(latest.steps <= job.total, f"{label}: the job has {job.total}")
        assert me.order is not None
        gang = len(me.order.devices)
        self._require(len(latest.files) == gang, f"{label}: {latest.files} of {gang}")
        since = max(me.began_at, job.committed_at)
        wanted = (
            latest.steps in (me.save_requested_at, job.total)
            or latest.steps == me.ends_epoch
            or self._record.now() - since > CHECKPOINT_S
            or me.leave_requested
            or self._record.now() >= me.valid_until
            or me.lease in self._record.leaving_gangs
        )
        self._require(wanted, f"{label}: no checkpoint was due")
        job.committed, job.committed_by = latest.steps, latest.lease
        job.committed_at, job.committed_ranks = self._record.now(), gang
        self._record.note(f"{label}: committed by {me.name}")
        if job.copies:
            self._copies.saved_whole(directory, latest, me)
            return
        for rank in range(gang):
            self._check_saved(directory, rank, latest.steps, label)

    def written(self, path: str, me: Process | None) -> None:
        """Check a member that announces its last step without the server."""
        if not path.endswith(".leaves"):
            return
        assert me is not None
        expired = self._record.now() >= me.valid_until
        self._require(
            expired or me.leave_requested or me.lease in self._record.leaving_gangs,
            f"{me.name} announces its last step before its lease expires",
        )
        started = int(path.split(".")[-2])
        self._record.leaving_gangs.setdefault(me.lease, {})[me.rank] = started

    def undone(self, path: str) -> None:
        """Check a file whose replacement a power failure has undone.

        A checkpoint may be lost during its commit, but not later.
        """
        directory, name = os.path.split(path)
        if name != "latest.json" or not os.path.isdir(directory):
            return
        copy = copy_of(directory)
        job = self._record.truth[directory.split(os.sep)[-2] if copy is None else copy[0]]
        if job.copies:
            self._copies.undone(directory, job)
        if copy is None and (job.copies or self._record.now() - job.committed_at < _FLUSHED_S):
            latest = checkpoint.latest(directory)
            job.committed = 0 if latest is None else latest.steps
            job.committed_by = -1 if latest is None else latest.lease
            job.committed_ranks = 0 if latest is None else len(latest.files)

    def _check_saved(self, directory: str, rank: int, steps: int, label: str) -> None:
        try:
            payload = checkpoint.read(directory, rank)
        except OSError as error:
            self._require(False, f"{label}: cannot read the part of rank {rank}: {error}")
            return
        assert payload is not None
        self.loaded(decode_state(payload)["model"], steps, rank, label)

    def began(self, process: Process, model: dict[str, int], steps: int) -> None:
        """Require that a member begins with its own state, or rank 0's if it had none."""
        assert process.order is not None
        ranks = self._record.truth[process.order.job].committed_ranks
        rank = process.rank if process.rank < ranks or not steps else 0
        self.loaded(model, steps, rank, f"{process.name} begins")

    def loaded(self, model: dict[str, int], steps: int, rank: int, label: str) -> None:
        """Require that a state is that of this rank after exactly these steps."""
        good = model == {"made": steps, "chain": chain(steps), "rank": rank}
        self._require(good, f"{label}: wrong state after {steps} steps: {model}")

    # -- processes ------------------------------------------------------------------------------

    def started(self, process: Process) -> None:
        """Check a member of a gang that starts now."""
        order = process.order
        assert order is not None
        job = self._record.truth[order.job]
        device = order.devices[process.rank]
        other = self._record.devices.get(device)
        if other is not None and other.alive:
            self._require(False, f"lease {order.lease} and {other.lease} both run on {device}")
        self._record.devices[device] = process
        self._record.note(f"{process.name} of {order.job} starts on {device}")
        fence = self._record.checkpoint_of(process).fence
        self._require(fence == order.lease, f"{process.name} starts before its fence is raised")
        accelerators = set(order.accelerators)
        gangs = (
            dict.fromkeys(accelerators, job.gang) if job.accelerators is None else job.accelerators
        )
        fits = len(accelerators) == 1 and len(order.devices) == gangs.get(order.accelerators[0])
        self._require(fits, f"{order.job} may not run on {order.devices}: {order.accelerators}")

    def stepped(self, process: Process, step: int) -> None:
        """Check a member that starts a step."""
        valid_until = max(process.valid_until, process.stuck_until)
        announced = self._record.leaving_gangs.get(process.lease, {})
        leaving = process.rank in announced
        self._require(
            not leaving or step <= max(announced.values()),
            f"{process.name} makes step {step} after the announced last steps {announced}",
        )
        late_s = self._record.now() - valid_until - process.stalled_s
        self._require(
            late_s < _NOTICES_S or process.leave_requested or leaving,
            f"{process.name} continues {late_s:.1f} s after its lease",
        )
        self._require(not process.lease_end_announced, f"{process.name} continues without a lease")
        silent_s = self._record.now() - process.renews_by - process.stalled_s
        self._require(
            silent_s < _RENEWS_S or process.renewing or process.leave_requested or leaving,
            f"{process.name} continues with a renewal overdue for {silent_s:.1f} s",
        )
        order = process.order
        assert order is not None
        if order.lease not in self._record.touched:
            saved = self._record.checkpoint_of(process).committed >= process.save_requested_at
            self._require(
                saved,
                f"{process.name} continues although step {process.save_requested_at} is not saved",
            )
        if len(order.devices) == 1 and order.lease not in self._record.touched:
            since = max(process.began_at, self._record.checkpoint_of(process).committed_at)
            soon = self._record.now() - since < 2 * CHECKPOINT_S
            self._require(soon, f"{process.name} has saved nothing since {since:.1f} s")

    def member_ended(self, process: Process) -> None:
        """Check a member that has exited."""
        assert process.order is not None
        if process.returncode in (1, -9):
            self._record.truth[process.order.job].crashes += 1
            if process.lease in self._record.crashed - self._record.left:
                self._record.died.add(process.lease)
        if process.returncode != 0:
            self._record.broken_at.setdefault(process.lease, self._record.now())
        if process.returncode in (0, LEFT) and process.rank == 0:
            truth, made = (
                self._record.truth[process.order.job],
                self._record.made.get(process.lease),
            )
            if truth.train and made is not None:
                own = self._record.checkpoint_of(process)
                saved = made == own.committed and own.committed_by == process.lease
                # The lease was lost and had saved before.
                later = truth.committed_by > process.lease
                self._require(
                    saved or later or not made,
                    f"{process.name} left with {own.committed} of {made} steps saved",
                )
        self._require(
            process.returncode != LEFT or not process.lease_end_announced or is_copy(process),
            f"{process.name} left normally although its lease had ended",
        )
        total = process.order.total_steps
        undisturbed = process.lease not in self._record.touched and not process.leave_requested
        if process.returncode == 0 and undisturbed:
            last = (
                not self._record.truth[process.order.job].train or process.reported_steps == total
            )
            self._require(
                last, f"{process.name} finished but reported {process.reported_steps} steps last"
            )
            truth = self._record.truth[process.order.job]
            since = max(truth.committed_at, process.began_at)
            late_s = self._record.now() - since - process.stalled_s
            soon = not truth.train or late_s < _ENDS_S
            self._require(soon, f"{process.name} ends {late_s:.1f} s after its last checkpoint")
        left = process.returncode in (LEFT, FAILED_TO_SAVE)
        if left and process.lease not in self._record.died:
            self._record.left.add(process.lease)
        if left and not process.leave_requested and not is_copy(process):
            expired = self._record.now() >= process.valid_until
            # A member also leaves when it cannot save: disk full, or a later lease has saved.
            later = self._record.truth[process.order.job].committed_by > process.lease
            unsaved = self._record.disk_was_full or later
            self._require(
                expired or unsaved or process.lease in self._record.leaving_gangs,
                f"{process.name} left without a request before its lease expired",
            )
            whole = process.lease not in self._record.crashed | self._record.died
            if process.lease in self._record.leaving_gangs and whole and not unsaved:
                saved = process.returncode == LEFT
                self._require(saved, f"{process.name} left with its gang but did not save")

    def check_gangs(self, members: Iterable[Process]) -> None:
        """Require that a gang ends soon after one of its members."""
        for member in members:
            assert member.order is not None
            late_s = self._record.now() - self._record.broken_at.get(
                member.lease, self._record.now()
            )
            late_s -= member.order.grace_s + member.stalled_s
            self._require(late_s < _LATE_S, f"{member.name} continues without its gang")

    def keeper_ended(self, keeper: Process, ended: Any, *, leave_requested: bool | None) -> None:
        """Check the outcome that a keeper reported."""
        order = keeper.order
        assert order is not None
        if ended is None:
            disturbed = order.lease in self._record.touched
            self._require(
                disturbed, f"{keeper.name} died with {keeper.returncode} without a cause"
            )
            return
        if leave_requested is None:  # no server answered its members
            self._record.touch([order.lease])
        label = f"lease {order.lease} of {order.job}"
        wanted = self._record.not_started.get(order.lease, ended.ending)
        self._require(
            ended.ending == wanted, f"{label} did not start: expected {wanted}, not {ended}"
        )
        if order.lease in self._record.died and leave_requested is False:
            self._require(ended.ending != "left", f"{label} crashed but ended as {ended}")
        if order.lease in self._record.touched:
            return
        self._require(
            ended.ending in ("left", "finished"),
            f"{label}: undisturbed but ended as {ended}",
        )
        if not self._record.truth[order.job].train:
            return
        saved = self._record.checkpoint_of(keeper).committed
        made = self._record.made.get(order.lease, saved)
        self._require(saved == made, f"{label} made {made} steps and saved {saved}: {ended}")
        self._require(ended.steps in (None, saved), f"{label} reports {ended.steps}, not {saved}")
        if is_copy(keeper):  # it leaves after its part
            self._require(ended.ending == "left", f"{label}: a copy ended as {ended}")
        elif ended.ending == "left":
            self._require(leave_requested is not False, f"{label} left without a request")
        else:
            self._require(saved == order.total_steps, f"{label} finished with {saved} steps")
