"""What must hold whatever goes wrong, checked as things happen against what really did."""

import math
import os
import pickle
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from fairlead.core.jobs import JobState
from fairlead.job import FAILED_TO_SAVE, LEFT, checkpoint
from fairlead.model import commands as cmd
from fairlead.model import events as ev
from fairlead.testing.faults_machine import Process

_NOTICES_S = 2.0
"""how long a member may go on after its lease, or after a call that it waited for: a retry"""
_LATE_S = 7.0
"""how long members may stay, beyond their grace, when one of their gang is gone"""
CHECKPOINT_S = 2.5
"""how often jobs of one member save their state"""


@cache
def chain(steps: int) -> int:
    """Return a number that only these steps, each made once and in order, lead to."""
    value = 0
    for i in range(steps):
        value = (value * 1_103_515_245 + i + 12_345) & 0x7FFF_FFFF
    return value


@dataclass
class Truth:
    """What has really become of one job."""

    total: int
    gang: int
    accelerators: tuple[str, ...] | None
    train: bool
    """it uses the library"""
    committed: int = 0
    """steps in the checkpoint in force"""
    committed_by: int = -1
    committed_at: float = 0.0
    fence: int = -1
    counted: float = 0.0
    """steps that the scheduler counts as saved"""
    written: float = 0.0
    """the same, as far as the store has it"""
    crashes: int = 0
    """how often its processes were made to fail, or could not start"""


@dataclass
class Checks:
    """Keeps the truth and compares."""

    stop: Callable[[], None]
    now: Callable[[], float]
    violation: str | None = None
    events: int = 0
    truth: dict[str, Truth] = field(default_factory=dict)
    acknowledged: set[str] = field(default_factory=set)
    cancelled: set[str] = field(default_factory=set)
    may_be_cancelled: set[str] = field(default_factory=set)
    """whose cancellation was asked for; the answer may have been lost"""
    held: set[str] = field(default_factory=set)
    may_be_held: set[str] = field(default_factory=set)
    drained: set[str] = field(default_factory=set)
    undone: Counter[str] = field(default_factory=Counter)
    """job or node → how often its release or return was asked for"""
    turned: set[str] = field(default_factory=set)
    """nodes that an operator has ever wanted down"""
    taken: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """node → which of its devices others hold, as far as the scheduler was told"""
    taken_written: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """the same, as far as the store holds it"""
    weights: dict[str, float] = field(default_factory=dict)
    made: dict[int, int] = field(default_factory=dict)
    """lease → steps in the memory of its first rank"""
    disk_was_full: bool = False
    times: dict[int, tuple[str, float, float]] = field(default_factory=dict)
    """lease → its job, when it was launched, and when it ended"""
    touched: set[int] = field(default_factory=set)
    """leases during whose life something went wrong"""
    crashed: set[int] = field(default_factory=set)
    """leases of which a member was made to die"""
    broken_at: dict[int, float] = field(default_factory=dict)
    """lease → when the first member of its gang was gone before its time"""
    devices: dict[tuple[str, int], Process] = field(default_factory=dict)
    trace: list[tuple[float, *tuple[object, ...]]] = field(default_factory=list)
    """what happened, and what followed from it"""

    def require(self, holds: object, problem: str) -> None:
        """Note the first violation and end the run."""
        if not holds and self.violation is None:
            self.violation = f"at {self.now():.3f} s: {problem}"
            self.stop()

    def note(self, *what: object) -> None:
        """Remember what happened, for whoever replays this run."""
        self.trace.append((self.now(), *what))

    # -- checkpoints ----------------------------------------------------------------------------

    def replaced(self, path: str, me: Process | None) -> None:
        """Look at a file of a checkpoint directory that has just been replaced."""
        directory, name = os.path.split(path)
        if name not in ("fence", "latest.json"):
            return
        job = self.truth[directory.split(os.sep)[-2]]
        if name == "fence":
            fence = checkpoint.fence(directory)
            self.require(fence >= job.fence, f"the fence of {directory} fell to {fence}")
            job.fence = fence
            return
        found = checkpoint.latest(directory)
        assert found is not None
        assert me is not None
        who = f"lease {found.lease} at step {found.steps}"
        self.require(found.lease == me.lease, f"{who}: committed by lease {me.lease}")
        self.require(found.lease >= job.fence, f"{who}: committed behind fence {job.fence}")
        self.require(found.steps >= job.committed, f"{who}: {job.committed} were committed")
        self.require(found.steps <= job.total, f"{who}: the job has {job.total}")
        self.require(len(found.files) == job.gang, f"{who}: {found.files} of {job.gang}")
        job.committed, job.committed_by = found.steps, found.lease
        job.committed_at = self.now()
        self.note(f"{who}: committed by {me.name}")
        for rank in range(job.gang):
            self._check_saved(directory, rank, found.steps, who)

    def _check_saved(self, directory: str, rank: int, steps: int, who: str) -> None:
        try:
            payload = checkpoint.read(directory, rank)
        except OSError as error:
            self.require(False, f"{who}: rank {rank} cannot be read: {error}")
            return
        assert payload is not None
        self.loaded(pickle.loads(payload)["model"], steps, rank, who)

    def loaded(self, model: dict[str, int], steps: int, rank: int, who: str) -> None:
        """Require that a state is a member's own after exactly these steps."""
        good = model == {"made": steps, "chain": chain(steps), "rank": rank}
        self.require(good, f"{who}: the state is not that after {steps} steps: {model}")

    # -- processes ------------------------------------------------------------------------------

    def started(self, process: Process) -> None:
        """Look at a member of a gang that starts now."""
        order = process.order
        assert order is not None
        job = self.truth[order.job]
        mine = order.devices[process.rank]
        other = self.devices.get(mine)
        if other is not None and other.alive:
            self.require(
                False, f"lease {order.lease} and {other.lease} run on {mine} at the same time"
            )
        self.devices[mine] = process
        self.note(f"{process.name} of {order.job} starts on {mine}")
        self.require(job.fence == order.lease, f"{process.name} starts, its fence is not raised")
        self.require(len(order.devices) == job.gang, f"{order.job} runs on {order.devices}")
        if job.accelerators is not None:
            fits = set(order.accelerators) <= set(job.accelerators)
            self.require(fits, f"{order.job} may not run on {order.accelerators}")

    def stepped(self, process: Process) -> None:
        """Look at a member that starts a step."""
        late_s = self.now() - max(process.valid_until, process.stuck_until) - process.stalled_s
        self.require(
            late_s < _NOTICES_S or process.told_to_leave,
            f"{process.name} goes on {late_s:.1f} s after its lease",
        )
        self.require(not process.told_it_is_over, f"{process.name} goes on without a lease")
        order = process.order
        assert order is not None
        if order.lease not in self.touched:
            saved = self.truth[order.job].committed >= process.wants_saved
            self.require(saved, f"{process.name} goes on, step {process.wants_saved} is not saved")
        if len(order.devices) == 1 and order.lease not in self.touched:
            since = max(process.began_at, self.truth[order.job].committed_at)
            soon = self.now() - since < 2 * CHECKPOINT_S
            self.require(soon, f"{process.name} has saved nothing since {since:.1f} s")

    def member_ended(self, process: Process) -> None:
        """Look at a member that has exited."""
        assert process.order is not None
        if process.returncode in (1, -9):
            self.truth[process.order.job].crashes += 1
        if process.returncode != 0:
            self.broken_at.setdefault(process.lease, self.now())
        if process.returncode in (0, LEFT) and process.rank == 0:
            truth, made = self.truth[process.order.job], self.made.get(process.lease)
            if truth.train and made is not None:
                saved = made == truth.committed and truth.committed_by == process.lease
                self.require(
                    saved, f"{process.name} left, {truth.committed} of {made} steps saved"
                )
        if process.returncode in (LEFT, FAILED_TO_SAVE) and not process.told_to_leave:
            over = self.now() >= process.valid_until or self.disk_was_full
            self.require(
                over, f"{process.name} left without being told to, or its lease being over"
            )

    def check_gangs(self, members: Iterable[Process]) -> None:
        """Require that nobody of a gang stays for long when one is gone."""
        for member in members:
            assert member.order is not None
            late_s = self.now() - self.broken_at.get(member.lease, self.now())
            late_s -= member.order.grace_s + member.stalled_s
            self.require(late_s < _LATE_S, f"{member.name} goes on without its gang")

    def took_over(self, live: Any) -> None:
        """Look at the leases of a server that has just started: they are those of the core."""
        scheduler = live.scheduler
        leases, end = scheduler.leases, scheduler.round_end_at
        slots = leases.open.tolist()
        known = {int(leases.lease[slot]): slot for slot in slots}
        self.require(set(live.leases) == set(known), f"leases {set(live.leases)} of {set(known)}")
        for number, found in live.leases.items():
            job = scheduler.jobs.number[found.job]
            slot = known.get(number, 0)
            good = (
                job == leases.job[slot]
                and found.ranks == scheduler.jobs.jobs[job].gang
                and found.until == (math.inf if end is None else end)
                and found.leaving == leases.leaving[slot]
            )
            self.require(good, f"after a restart lease {number} is taken for {found}")

    def renewed(
        self, live: Any, lease: int, told: dict[str, object], answer: dict[str, object] | None
    ) -> None:
        """Look at what the server makes of a renewal, and what it answers."""
        found = live.leases.get(lease)
        if found is not None:
            known = found.steps >= float(str(told["steps"]))
            self.require(known, f"lease {lease} is at {found.steps} steps, but told {told}")
        if answer is None or answer["leave"] or found is None:
            self.require((answer is None) == (found is None), f"lease {lease} is told {answer}")
            return
        valid_s = float(str(answer["valid_s"]))
        left_s = found.until - live.clock.now()
        good = 0 <= valid_s <= max(left_s, 0.0) + 1e-6 and (valid_s > 0 or left_s <= 1e-6)
        self.require(good, f"lease {lease} has {left_s} s left and is told {valid_s}")

    def touch(self, leases: Iterable[int]) -> None:
        """Note that something went wrong for these leases."""
        self.touched.update(leases)

    def kept(self, keeper: Process, ended: Any, *, asked: bool | None) -> None:
        """Look at how a lease ended of whose keeper all was well."""
        order = keeper.order
        if order is None or ended is None:
            return
        if asked is None:  # nobody was there whom its members could have asked
            self.touch([order.lease])
        who = f"lease {order.lease} of {order.job}"
        if order.lease in self.crashed and asked is False:
            self.require(ended.ending != "left", f"{who} crashed, but {ended}")
        if order.lease in self.touched:
            return
        self.require(
            ended.ending in ("left", "finished"),
            f"{who}: nothing went wrong, but it ended as {ended}",
        )
        if not self.truth[order.job].train:
            return
        saved = self.truth[order.job].committed
        made = self.made.get(order.lease, saved)
        self.require(saved == made, f"{who} made {made} steps and saved {saved}: {ended}")
        self.require(ended.steps in (None, saved), f"{who} reports {ended.steps}, not {saved}")
        if ended.ending == "left":
            self.require(asked is not False, f"{who} left without being asked to")
        else:
            self.require(saved == order.total_steps, f"{who} finished with {saved} steps")

    # -- the scheduler --------------------------------------------------------------------------

    def handled(self, live: Any, event: ev.Event, commands: list[cmd.Command]) -> None:
        """Look at the scheduler after an event."""
        self.events += 1
        scheduler = live.scheduler
        jobs, leases = scheduler.jobs, scheduler.leases
        states, saved = jobs.state[: len(jobs)].tolist(), jobs.saved_steps[: len(jobs)].tolist()
        for job_id, state, steps in zip(jobs.ids, states, saved, strict=True):
            truth = self.truth.get(job_id)
            if truth is None:
                continue
            self.require(steps <= truth.total, f"{job_id}: {steps} of {truth.total} counted")
            if truth.counted != steps:
                self.require(steps >= truth.counted, f"{job_id} fell back to {steps} steps")
                truth.counted = steps
            if truth.train:
                self.require(
                    steps <= truth.committed, f"{job_id}: {steps} counted, {truth.committed} made"
                )
                if state == JobState.FINISHED:
                    done = steps == truth.committed == truth.total
                    self.require(done, f"{job_id} finished with {steps} of {truth.total} steps")
            if state == JobState.FAILED:
                self.require(
                    truth.crashes > live.specs[job_id].retries,
                    f"{job_id} was given up after {truth.crashes} crashes",
                )
        open_ = leases.open
        held = leases.holder[leases.holder >= 0].tolist()
        self.require(set(held) <= set(open_.tolist()), "a device is held by no open lease")
        holders = leases.job[open_].tolist()
        self.require(len(set(holders)) == len(holders), "a job has two leases")
        self.require(
            sum(jobs.jobs[job].gang for job in holders) == len(held),
            "leases and devices do not match",
        )
        if isinstance(event, ev.DevicesTaken):
            self.taken[event.node] = event.numbers
        for command in commands:
            if isinstance(command, cmd.Launch):
                self._launched(live, command, event.at)
        if isinstance(event, ev.LeasesEnded):
            self._check_time(live, event)

    def _check_limits(self, scheduler: Any, launched: set[tuple[str, str]]) -> None:
        """Require that tenants hold no more of what their jobs were launched on than they may."""
        jobs, leases, cluster = scheduler.jobs, scheduler.leases, scheduler.cluster
        for tenant in jobs.tenants:
            for kind, most in tenant.limit.items():
                if (tenant.id, kind) not in launched:
                    continue  # the limit may have come after its leases
                mine = [
                    slot
                    for slot in leases.staying.tolist()
                    if jobs.jobs[leases.job[slot]].tenant == tenant.id
                ]
                on = cluster.accelerator_of[np.isin(leases.holder, mine).any(axis=0)]
                held = np.count_nonzero(on == cluster.accelerators.index(kind))
                self.require(held <= most, f"tenant {tenant.id} holds {held} {kind}, not {most}")

    def _check_time(self, live: Any, event: ev.LeasesEnded) -> None:
        """Require that a job has been credited with the time of all its leases, no more."""
        jobs = live.scheduler.jobs
        for lease in event.lease.tolist():
            job, since, _ = self.times[lease]
            self.times[lease] = job, since, event.at
            mine = [ended - began for of, began, ended in self.times.values() if of == job]
            if jobs.lease[jobs.number[job]] >= 0:
                continue  # the next one was launched at once
            counted = float(jobs.received_s[jobs.number[job]].sum())
            self.require(
                abs(counted - sum(mine)) < 1e-3, f"{job} held devices for {mine}, not {counted}"
            )

    def _launched(self, live: Any, command: cmd.Launch, at: float) -> None:
        cluster, jobs = live.scheduler.cluster, live.scheduler.jobs
        for lease, placement in zip(command.lease.tolist(), command.on, strict=True):
            job_id = jobs.ids[placement.job]
            self.times[lease] = job_id, at, at
            active = jobs.state[placement.job] == JobState.ACTIVE
            self.require(active, f"{job_id} is launched though it is not to run")
            self.require(job_id not in self.held, f"{job_id} is launched though it is held")
            self.require(job_id not in self.cancelled, f"{job_id} is launched though cancelled")
            for device in placement.devices:
                index = cluster.node_of[device]
                node = cluster.nodes[index].id
                self.require(node not in self.drained, f"{job_id} is launched on drained {node}")
                number = device - int(np.searchsorted(cluster.node_of, index))
                free = number not in self.taken.get(node, ())
                self.require(free, f"{job_id} is launched on {node}:{number}, which others hold")
        kinds, kind_of = cluster.accelerators, cluster.accelerator_of
        self._check_limits(
            live.scheduler,
            {(jobs.jobs[p.job].tenant, kinds[kind_of[p.devices[0]]]) for p in command.on},
        )

    def settled(self) -> None:
        """Note that the store holds all that was handled so far."""
        for truth in self.truth.values():
            truth.written = truth.counted
        self.taken_written = dict(self.taken)

    def rebuilt(self, live: Any) -> None:
        """Look at what a server knows after a restart."""
        jobs = live.scheduler.jobs
        for job_id, truth in self.truth.items():
            known = job_id in jobs.number
            self.require(known, f"{job_id} has run and is lost")
            if known:
                truth.counted = float(jobs.saved_steps[jobs.number[job_id]])
                good = truth.written <= truth.counted
                self.require(good, f"{job_id} fell back to {truth.counted} steps")
        for job_id in sorted(self.acknowledged):
            known = job_id in jobs.number and job_id in live.specs
            self.require(known, f"{job_id} was acknowledged and is lost")
            if not known:
                return
            state = jobs.state[jobs.number[job_id]]
            if job_id in self.cancelled:
                self.require(state == JobState.CANCELLED, f"{job_id} is not cancelled any more")
            if job_id in self.held:
                self.require(state != JobState.ACTIVE, f"{job_id} is not held any more")
        down = {live.scheduler.cluster.nodes[node].id for node in live.scheduler.nodes.down}
        self.require(self.drained <= down, f"{self.drained - down} are not drained any more")
        nodes = live.scheduler.nodes
        taken = {node.id: nodes.taken_of(node.id) for node in nodes.cluster.nodes}
        told = (
            {node: had.get(node, ()) for node in taken} for had in (self.taken_written, self.taken)
        )
        self.require(taken in told, f"others hold {taken} after a restart")
        self.taken = taken
        weights = {tenant.id: tenant.weight for tenant in jobs.tenants}
        for tenant, weight in self.weights.items():
            self.require(weights.get(tenant) == weight, f"tenant {tenant} lost its weight")

    def ended(self, live: Any) -> None:
        """Require that every job has come to its end."""
        jobs = live.scheduler.jobs
        for job_id, number in jobs.number.items():
            state = JobState(int(jobs.state[number]))
            good = {JobState.FINISHED}
            if live.specs[job_id].retries < 100:
                good.add(JobState.FAILED)
            if job_id in self.may_be_cancelled:
                good.add(JobState.CANCELLED)
            if job_id in self.cancelled:
                good = {JobState.CANCELLED}
            self.require(state in good, f"{job_id} never came to its end: {state.name}")
