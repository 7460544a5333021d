"""Keepers and job processes: production code on simulated processes."""

import errno
import random
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.faults.checks.checks import Checks
from tests.faults.machine.machine import Machine, Process
from tests.faults.machine.virtual_time import Event
from tests.faults.record import JobTruth
from tests.faults.scenario import Fault

from fairlead.engines.base import LaunchOrder
from fairlead.engines.keeper import keeper, lease_dir
from fairlead.job.leased_run import LeasedRun

_EPOCH = 5
"""steps per epoch of jobs that train in epochs"""
_SOON_S = 0.1
_MAX_START_S = 0.4
"""maximum start-up time of a keeper, in seconds"""


class Jobs:
    """Starts keepers and members and lists the running ones."""

    def __init__(self, machine: Machine, checks: Checks, rng: random.Random) -> None:
        self._machine = machine
        self._checks = checks
        self._rng = rng
        self._barriers: dict[int, _Barrier] = {}
        self.slow_s: dict[str, float] = {}
        """job → additional seconds per step"""
        self.damaged: set[str] = set()
        """jobs with a damaged checkpoint file"""
        self.begins_by: dict[int, float] = {}
        """leases with a late keeper → latest time of its begin"""
        self.slow_to_begin: dict[int, float] = {}
        """lease → seconds that its keeper idles before it begins"""
        self.late: Fault | None = None
        """fault that delays the next keeper, if any"""
        self.cut_node: Callable[[str, float], object] = lambda *_: None
        self.cancel: Callable[[str, float], object] = lambda *_: None
        self.fails_to_start = 0
        """number of the next members that fail to start"""
        self.fails_from_rank = 0
        self.fails_for_memory = False
        """whether memory is exhausted, which is not the job's failure"""
        self.leave_requested: Callable[[int], bool | None] = lambda _: None
        """lease → whether the scheduler has preempted it, None if unknown"""
        machine.on_exit = self._exited

    def keepers(self) -> list[Process]:
        """Return the live keepers."""
        return [process for process in self._machine.processes.values() if process.rank < 0]

    def members(self) -> list[Process]:
        """Return the live members of gangs."""
        return [process for process in self._machine.processes.values() if process.rank >= 0]

    def leases(self) -> set[int]:
        """Return the leases with a live process."""
        return {process.lease for process in self._machine.processes.values()}

    # -- keepers --------------------------------------------------------------------------------

    def spawn_keeper(self, directory: str) -> int:
        """Start the keeper of a lease; return its pid."""
        order = lease_dir.read_order(Path(directory))
        process = self._machine.spawn(
            f"keeper {order.lease}",
            lambda _: sys.exit(keeper.run_lease(Path(directory))),
            nodes={node for node, _ in order.devices},
            after_s=self._begins_after_s(order),
        )
        process.masked = True
        process.order = order
        process.started_by = self._machine.servers
        self._machine.keepers[process.pid] = process
        if order.job not in self._checks.truth:
            gang = int(order.environment.get("GANG", "1"))
            self._checks.truth[order.job] = JobTruth(
                order.total_steps or 0,
                gang,
                _allowed(order.environment, gang),
                order.command[0] == "train",
                copies="COPIES" in order.environment,
            )
        self._checks.copies.launched(process)
        return process.pid

    def _begins_after_s(self, order: LaunchOrder) -> float:
        """Return the delay of a keeper's begin: short, or until its node was lost long ago."""
        late, train = self.late, order.command[0] == "train"
        # Jobs without the library do not leave by themselves, so the engine waits for them.
        # In production a gang over nodes has one keeper per node; reachable ones are stopped.
        over_nodes = len({node for node, _ in order.devices}) > 1
        if late is None or over_nodes or (train and late.pick < 0.6):
            return self._rng.uniform(0.0, _MAX_START_S)
        self.late = None
        self._checks.touch([order.lease])
        node, cut_s = order.devices[0][0], 2.0 * late.for_s
        if int(4.0 * late.for_s) % 2:  # no later lease raises the job's fence
            self.cancel(order.job, late.for_s)
        if late.pick < 0.5:  # the keeper starts no member until its node is reconnected
            self._machine.loop.call_later(_SOON_S, self.cut_node, node, cut_s)
            self.slow_to_begin[order.lease] = cut_s + 1.0
            after_s = 0.0
        else:
            self.cut_node(node, cut_s)
            self.slow_to_begin[order.lease] = late.for_s
            after_s = late.pick * 3.0 * late.for_s
        self.begins_by[order.lease] = (
            self._machine.loop.time() + after_s + self.slow_to_begin[order.lease]
        )
        return after_s

    def _exited(self, process: Process) -> None:
        assert process.order is not None
        order = process.order
        self._checks.note(f"{process.name} exits with {process.returncode}", process.error)
        if process.rank >= 0:
            if self.leave_requested(order.lease) is None:  # its lease may have expired
                self._checks.touch([order.lease])
            self._checks.jobs.member_ended(process)
            return
        directory = Path(order.log_dir).parents[2] / "leases" / str(order.lease)
        ended = lease_dir.read_ended(directory, order.lease)
        self._checks.jobs.keeper_ended(
            process, ended, leave_requested=self.leave_requested(order.lease)
        )

    def kill_orphans(self, lease: int) -> bool:
        """Kill the members that a dead keeper has left; return whether there are any."""
        orphans = [member for member in self.members() if member.lease == lease]
        for member in orphans:
            self._machine.kill(member)
        return bool(orphans)

    # -- members --------------------------------------------------------------------------------

    def spawn_member(self, command: Any, *, env: Mapping[str, str], **_: Any) -> Process:
        """Start a member; replaces ``subprocess.Popen``."""
        parent = self._machine.me
        assert parent is not None
        assert parent.order is not None
        rank = int(env["FAIRLEAD_RANK"])
        cut = self._machine.unreachable
        # The engine starts no member of a lost gang on reachable nodes.
        in_lost_gang = bool(parent.nodes & cut) and parent.order.devices[rank][0] not in cut
        fails = self.fails_to_start > 0 and rank >= self.fails_from_rank
        if fails or in_lost_gang:
            self._checks.touch([parent.lease])
            if fails:
                self.fails_to_start -= 1
                if self.fails_for_memory:
                    self._checks.not_started[parent.lease] = "lost"
                    raise OSError(errno.ENOMEM, "no memory for another process")
            self._checks.truth[parent.order.job].crashes += 1
            self._checks.not_started[parent.lease] = "failed"
            raise OSError("cannot start the process")
        train = command[0] == "train"
        if parent.order.job in self.damaged:
            self._checks.touch([parent.lease])
        process = self._machine.spawn(
            f"lease {parent.lease} rank {rank}",
            lambda me: (
                self._train(me, env) if train else self._run_without_library(float(command[1]))
            ),
            parent=parent,
            nodes=parent.nodes,
        )
        process.order, process.rank = parent.order, rank
        self._checks.jobs.started(process)
        return process

    def _run_without_library(self, for_s: float) -> None:
        """Run a job without the job library: it finishes after a while."""
        self._machine.threads.sleep(for_s)

    def _train(self, me: Process, env: Mapping[str, str]) -> None:
        order = me.order
        assert order is not None
        threads = self._machine.threads
        if len(order.devices) > 1:  # members load for different times
            threads.sleep(self._rng.choice((0.0, 0.0, 0.3, 1.0)))
        me.began_at = self._machine.loop.time()
        me.valid_until = me.began_at + float(env["FAIRLEAD_LEASE_S"])
        me.renews_by = me.began_at
        run = LeasedRun(order.lease, env)
        if self._checks.truth[order.job].copies:
            self._train_in_copies(me, run)
            return
        model = {"made": 0, "chain": 0, "rank": me.rank, "fresh": 1}
        # Some jobs keep their state in a dict, the others in an object.
        run.register(model=model if (order.total_steps or 0) % 2 else _Model(model))
        if run.steps_done == 0:
            del model["fresh"]
        self._checks.jobs.began(me, model, run.steps_done)
        model["rank"] = me.rank
        gang = len(order.devices)
        if gang > 1 and order.lease not in self._barriers:
            self._barriers[order.lease] = _Barrier(self._machine.threads.event, gang)
        for i in _in_epochs(run, order.total_steps or 0):
            self._checks.jobs.stepped(me, i + 1)
            delay_s = self.slow_s.get(order.job)
            if delay_s:
                self._checks.touch([order.lease])
                threads.sleep(delay_s)
            if gang > 1:  # members are not equally fast
                threads.sleep(self._rng.uniform(0.0, 0.1))
                self._barriers[order.lease].meet(me.rank, i)
                threads.sleep(self._rng.uniform(0.0, 0.3))
            model["chain"] = (model["chain"] * 1_103_515_245 + i + 12_345) & 0x7FFF_FFFF
            model["made"] += 1
            if (i + 1) % _EPOCH == 0 and (order.total_steps or 0) % _EPOCH == 0:
                me.ends_epoch = i + 1
            if me.rank == 0:
                self._checks.made[order.lease] = model["made"]
            if (order.total_steps or 0) % 4 == 0 and i % 3 == 1:
                run.checkpoint()
                me.save_requested_at = model["made"]

    def _train_in_copies(self, me: Process, run: LeasedRun) -> None:
        """Train as the job itself, or as one of its copies; the model is one number."""
        order = me.order
        assert order is not None
        model = {"value": 0.0}
        run.register(model=model)
        self._checks.copies.began(me, model, run.steps_done)
        made = 0 if run.copy else run.steps_done
        for i in _in_epochs(run, order.total_steps or 0):
            self._checks.jobs.stepped(me, i + 1)
            delay_s = self.slow_s.get(order.job)
            if delay_s:
                self._checks.touch([order.lease])
                self._machine.threads.sleep(delay_s)
            model["value"] += 1.0
            made += 1
            self._checks.made[order.lease] = made
            if not run.copy and (i + 1) % _EPOCH == 0 and (order.total_steps or 0) % _EPOCH == 0:
                me.ends_epoch = i + 1
            if (order.total_steps or 0) % 4 == 0 and i % 3 == 1:
                run.checkpoint()
                me.save_requested_at = made
        self._checks.copies.ended_program(me)


def _in_epochs(run: LeasedRun, total: int) -> Iterator[int]:
    """Yield the remaining steps; some jobs iterate over epochs."""
    if total % _EPOCH:
        yield from run.steps(range(total))
        return
    for first in range(0, total, _EPOCH):
        yield from run.steps(range(first, first + _EPOCH))


class _Model:
    """Object with a state, as training libraries have."""

    def __init__(self, state: dict[str, int]) -> None:
        self._state = state

    def state_dict(self) -> dict[str, int]:
        return self._state

    def load_state_dict(self, state: dict[str, int]) -> None:
        self._state.clear()
        self._state.update(state)


class _Barrier:
    """Collective operation: each member waits for the whole gang."""

    def __init__(self, event: Callable[[], Event], gang: int) -> None:
        self._make = event
        self._all = event()
        self._gang = gang
        self._arrived: dict[int, int] = {}

    def meet(self, rank: int, step: int) -> None:
        """Wait until all ranks have reached this step."""
        self._arrived[rank] = step
        if len(self._arrived) == self._gang and min(self._arrived.values()) >= step:
            self._all.set()
            self._all = self._make()
            return
        while len(self._arrived) < self._gang or min(self._arrived.values()) < step:
            self._all.wait()


def _allowed(environment: Mapping[str, str], gang: int) -> dict[str, int] | None:
    allowed = environment.get("ALLOWED")
    if not allowed:
        return None
    entries = (entry.partition("=") for entry in allowed.split(","))
    return {accelerator: int(count or gang) for accelerator, _, count in entries}
