"""What must hold of job processes, keepers and checkpoints whatever goes wrong."""

import os
import pickle
from collections.abc import Iterable
from typing import Any

from tests.faults.machine.machine import Process
from tests.faults.record import CHECKPOINT_S, Record, chain

from fairlead.job import FAILED_TO_SAVE, LEFT, checkpoint

_ENDS_S = 4.0
"""in which a member whose last step is saved has said so and ended"""
_NOTICES_S = 2.0
"""how long a member may go on after its lease, or after a call that it waited for: a retry"""
_ASKS_S = 0.5
"""how much later than it should a member may ask again whether its lease goes on"""
_FLUSHED_S = 0.5
"""how long a slow disk may take to flush a checkpoint's new name"""
_LATE_S = 7.0
"""how long members may stay, beyond their grace, when one of their gang is gone"""


class JobChecks:
    """Looks at every file that is replaced and at every start, step and end of a process."""

    def __init__(self, record: Record) -> None:
        self._record, self._require = record, record.require

    # -- checkpoints ----------------------------------------------------------------------------

    def replaced(self, path: str, me: Process | None) -> None:
        """Look at a file of a checkpoint directory that has just been replaced."""
        directory, name = os.path.split(path)
        if name not in ("fence", "latest.json"):
            return
        job = self._record.truth[directory.split(os.sep)[-2]]
        if name == "fence":
            fence = checkpoint.fence(directory)
            self._require(fence >= job.fence, f"the fence of {directory} fell to {fence}")
            job.fence = fence
            return
        found = checkpoint.latest(directory)
        assert found is not None
        assert me is not None
        who = f"lease {found.lease} at step {found.steps}"
        self._require(found.lease == me.lease, f"{who}: committed by lease {me.lease}")
        self._require(found.lease >= job.fence, f"{who}: committed behind fence {job.fence}")
        self._require(found.steps >= job.committed, f"{who}: {job.committed} were committed")
        self._require(found.steps <= job.total, f"{who}: the job has {job.total}")
        assert me.order is not None
        gang = len(me.order.devices)
        self._require(len(found.files) == gang, f"{who}: {found.files} of {gang}")
        since = max(me.began_at, job.committed_at)
        wanted = (
            found.steps in (me.wants_saved, job.total)
            or found.steps == me.ends_epoch
            or self._record.now() - since > CHECKPOINT_S
            or me.leave_requested
            or self._record.now() >= me.valid_until
            or me.lease in self._record.parting
        )
        self._require(wanted, f"{who}: it was not time for a checkpoint")
        job.committed, job.committed_by = found.steps, found.lease
        job.committed_at, job.committed_ranks = self._record.now(), gang
        self._record.note(f"{who}: committed by {me.name}")
        for rank in range(gang):
            self._check_saved(directory, rank, found.steps, who)

    def written(self, path: str, me: Process | None) -> None:
        """Look at a member that says after which step it leaves without asking the server."""
        if not path.endswith(".leaves"):
            return
        assert me is not None
        over = self._record.now() >= me.valid_until
        self._require(
            over or me.leave_requested or me.lease in self._record.parting,
            f"{me.name} parts before its lease is over",
        )
        started = int(path.split(".")[-2])
        self._record.parting.setdefault(me.lease, {})[me.rank] = started

    def undone(self, path: str) -> None:
        """Look at a file whose replacement was lost with the power, before it was flushed.

        A checkpoint may be lost while it is being put in force, and not later.
        """
        directory, name = os.path.split(path)
        if name != "latest.json":
            return
        job = self._record.truth[directory.split(os.sep)[-2]]
        if self._record.now() - job.committed_at < _FLUSHED_S:
            found = checkpoint.latest(directory)
            job.committed = 0 if found is None else found.steps
            job.committed_by = -1 if found is None else found.lease
            job.committed_ranks = 0 if found is None else len(found.files)

    def _check_saved(self, directory: str, rank: int, steps: int, who: str) -> None:
        try:
            payload = checkpoint.read(directory, rank)
        except OSError as error:
            self._require(False, f"{who}: rank {rank} cannot be read: {error}")
            return
        assert payload is not None
        self.loaded(pickle.loads(payload)["model"], steps, rank, who)

    def began(self, process: Process, model: dict[str, int], steps: int) -> None:
        """Require that a member begins with its own state; with the first's if it had none."""
        assert process.order is not None
        ranks = self._record.truth[process.order.job].committed_ranks
        rank = process.rank if process.rank < ranks or not steps else 0
        self.loaded(model, steps, rank, f"{process.name} begins")

    def loaded(self, model: dict[str, int], steps: int, rank: int, who: str) -> None:
        """Require that a state is a member's own after exactly these steps."""
        good = model == {"made": steps, "chain": chain(steps), "rank": rank}
        self._require(good, f"{who}: the state is not that after {steps} steps: {model}")

    # -- processes ------------------------------------------------------------------------------

    def started(self, process: Process) -> None:
        """Look at a member of a gang that starts now."""
        order = process.order
        assert order is not None
        job = self._record.truth[order.job]
        mine = order.devices[process.rank]
        other = self._record.devices.get(mine)
        if other is not None and other.alive:
            self._require(
                False, f"lease {order.lease} and {other.lease} run on {mine} at the same time"
            )
        self._record.devices[mine] = process
        self._record.note(f"{process.name} of {order.job} starts on {mine}")
        self._require(job.fence == order.lease, f"{process.name} starts, its fence is not raised")
        kinds = set(order.accelerators)
        gangs = dict.fromkeys(kinds, job.gang) if job.accelerators is None else job.accelerators
        fits = len(kinds) == 1 and len(order.devices) == gangs.get(order.accelerators[0])
        self._require(fits, f"{order.job} may not run on {order.devices}: {order.accelerators}")

    def stepped(self, process: Process, step: int) -> None:
        """Look at a member that starts its so-many-th step."""
        valid_until = max(process.valid_until, process.stuck_until)
        said = self._record.parting.get(process.lease, {})
        parts = process.rank in said
        self._require(
            not parts or step <= max(said.values()), f"{process.name} makes step {step} of {said}"
        )
        late_s = self._record.now() - valid_until - process.stalled_s
        self._require(
            late_s < _NOTICES_S or process.leave_requested or parts,
            f"{process.name} goes on {late_s:.1f} s after its lease",
        )
        self._require(not process.lease_end_announced, f"{process.name} goes on without a lease")
        silent_s = self._record.now() - process.asks_by - process.stalled_s
        self._require(
            silent_s < _ASKS_S or process.asking or process.leave_requested or parts,
            f"{process.name} goes on, and should have asked for {silent_s:.1f} s",
        )
        order = process.order
        assert order is not None
        if order.lease not in self._record.touched:
            saved = self._record.truth[order.job].committed >= process.wants_saved
            self._require(
                saved, f"{process.name} goes on, step {process.wants_saved} is not saved"
            )
        if len(order.devices) == 1 and order.lease not in self._record.touched:
            since = max(process.began_at, self._record.truth[order.job].committed_at)
            soon = self._record.now() - since < 2 * CHECKPOINT_S
            self._require(soon, f"{process.name} has saved nothing since {since:.1f} s")

    def member_ended(self, process: Process) -> None:
        """Look at a member that has exited."""
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
                saved = made == truth.committed and truth.committed_by == process.lease
                later = truth.committed_by > process.lease  # it was given up, and had saved before
                self._require(
                    saved or later, f"{process.name} left, {truth.committed} of {made} steps saved"
                )
        self._require(
            process.returncode != LEFT or not process.lease_end_announced,
            f"{process.name} left as if its lease had been good",
        )
        total = process.order.total_steps
        undisturbed = process.lease not in self._record.touched and not process.leave_requested
        if process.returncode == 0 and undisturbed:
            last = not self._record.truth[process.order.job].train or process.told_steps == total
            self._require(last, f"{process.name} is done, and last told of {process.told_steps}")
            truth = self._record.truth[process.order.job]
            since = max(truth.committed_at, process.began_at)
            late_s = self._record.now() - since - process.stalled_s
            soon = not truth.train or late_s < _ENDS_S
            self._require(soon, f"{process.name} ends {late_s:.1f} s after its last checkpoint")
        left = process.returncode in (LEFT, FAILED_TO_SAVE)
        if left and process.lease not in self._record.died:
            self._record.left.add(process.lease)
        if left and not process.leave_requested:
            over = self._record.now() >= process.valid_until
            # It leaves as well when it cannot save: there is no room, or a later lease has saved.
            later = self._record.truth[process.order.job].committed_by > process.lease
            unsaved = self._record.disk_was_full or later
            self._require(
                over or unsaved or process.lease in self._record.parting,
                f"{process.name} left without being told to, or its lease being over",
            )
            whole = process.lease not in self._record.crashed | self._record.died
            if process.lease in self._record.parting and whole and not unsaved:
                saved = process.returncode == LEFT
                self._require(saved, f"{process.name} parted from its gang and saved nothing")

    def check_gangs(self, members: Iterable[Process]) -> None:
        """Require that nobody of a gang stays for long when one is gone."""
        for member in members:
            assert member.order is not None
            late_s = self._record.now() - self._record.broken_at.get(
                member.lease, self._record.now()
            )
            late_s -= member.order.grace_s + member.stalled_s
            self._require(late_s < _LATE_S, f"{member.name} goes on without its gang")

    def kept(self, keeper: Process, ended: Any, *, asked: bool | None) -> None:
        """Look at how a lease ended of whose keeper all was well."""
        order = keeper.order
        assert order is not None
        if ended is None:
            well = order.lease in self._record.touched
            self._require(well, f"{keeper.name} died with {keeper.returncode} of nothing")
            return
        if asked is None:  # nobody was there whom its members could have asked
            self._record.touch([order.lease])
        who = f"lease {order.lease} of {order.job}"
        wanted = self._record.not_started.get(order.lease, ended.ending)
        self._require(ended.ending == wanted, f"{who} did not start: it is {wanted}, not {ended}")
        if order.lease in self._record.died and asked is False:
            self._require(ended.ending != "left", f"{who} crashed, but {ended}")
        if order.lease in self._record.touched:
            return
        self._require(
            ended.ending in ("left", "finished"),
            f"{who}: nothing went wrong, but it ended as {ended}",
        )
        if not self._record.truth[order.job].train:
            return
        saved = self._record.truth[order.job].committed
        made = self._record.made.get(order.lease, saved)
        self._require(saved == made, f"{who} made {made} steps and saved {saved}: {ended}")
        self._require(ended.steps in (None, saved), f"{who} reports {ended.steps}, not {saved}")
        if ended.ending == "left":
            self._require(asked is not False, f"{who} left without being asked to")
        else:
            self._require(saved == order.total_steps, f"{who} finished with {saved} steps")
