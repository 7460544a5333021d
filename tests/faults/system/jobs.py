"""Job processes and keepers of the simulation: our own code, on simulated processes."""

import errno
import random
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.faults.checks.checks import Checks
from tests.faults.machine.machine import Machine, Process
from tests.faults.machine.virtual_time import Event
from tests.faults.record import Truth
from tests.faults.scenario import Fault

from fairlead.engines.base import Order
from fairlead.engines.keeper import keeper, lease_dir
from fairlead.job.leased_run import LeasedRun

_EPOCH = 5
"""steps of which training data is made, where a job goes over them several times"""
_SOON_S = 0.1
_LATEST_START_S = 0.4
"""a keeper is a Python program: it takes this long to begin"""


class Jobs:
    """Starts keepers and members, and knows what runs where."""

    def __init__(self, machine: Machine, checks: Checks, rng: random.Random) -> None:
        self._machine = machine
        self._checks = checks
        self._rng = rng
        self._met: dict[int, _Barrier] = {}
        self.slow_s: dict[str, float] = {}
        """job → how much longer a step takes"""
        self.damaged: set[str] = set()
        """jobs of whose checkpoint a file is not what was written"""
        self.begins_by: dict[int, float] = {}
        """leases whose keepers begin late → when they have begun at the latest"""
        self.slow_to_begin: dict[int, float] = {}
        """lease → how long its keeper lives before it does anything"""
        self.late: Fault | None = None
        """how the next keeper begins late, if it does"""
        self.cut_node: Callable[[str, float], object] = lambda *_: None
        self.cancel: Callable[[str, float], object] = lambda *_: None
        self.fails_to_start = 0
        """how many of the next members do not start"""
        self.fails_from_rank = 0
        self.fails_for_want = False
        """whether the machine is to blame and not the job"""
        self.asked: Callable[[int], bool | None] = lambda _: None
        """lease → whether the scheduler wants it to leave, None if nobody knows"""
        machine.on_exit = self._exited

    def keepers(self) -> list[Process]:
        """Return the keepers that live."""
        return [one for one in self._machine.processes.values() if one.rank < 0]

    def members(self) -> list[Process]:
        """Return the members of gangs that live."""
        return [one for one in self._machine.processes.values() if one.rank >= 0]

    def leases(self) -> set[int]:
        """Return the leases of which a process lives."""
        return {one.lease for one in self._machine.processes.values()}

    # -- keepers --------------------------------------------------------------------------------

    def spawn_keeper(self, directory: str) -> int:
        """Start the keeper of a lease; return its process number."""
        order = lease_dir.read_order(Path(directory))
        process = self._machine.spawn(
            f"keeper {order.lease}",
            lambda _: sys.exit(keeper.keep(Path(directory))),
            nodes={node for node, _ in order.devices},
            after_s=self._begins_after_s(order),
        )
        process.masked = True
        process.order = order
        process.started_by = self._machine.servers
        self._machine.keepers[process.pid] = process
        if order.job not in self._checks.truth:
            gang = int(order.environment.get("GANG", "1"))
            self._checks.truth[order.job] = Truth(
                order.total_steps or 0,
                gang,
                _allowed(order.environment, gang),
                order.command[0] == "train",
            )
        return process.pid

    def _begins_after_s(self, order: Order) -> float:
        """Return when a keeper begins: soon, or when its node may have been given up long ago."""
        late, train = self.late, order.command[0] == "train"
        # Jobs without the library do not leave of themselves, so they are waited for.
        # A gang over nodes has a keeper on each in truth: those that are reached are told to end.
        over_nodes = len({node for node, _ in order.devices}) > 1
        if late is None or over_nodes or (train and late.pick < 0.6):
            return self._rng.uniform(0.0, _LATEST_START_S)
        self.late = None
        self._checks.touch([order.lease])
        node, found_s = order.devices[0][0], 2.0 * late.for_s
        if int(4.0 * late.for_s) % 2:  # nobody raises the job's fence again
            self.cancel(order.job, late.for_s)
        if late.pick < 0.5:  # it lives, and has started nobody, until its node is found again
            self._machine.loop.call_later(_SOON_S, self.cut_node, node, found_s)
            self.slow_to_begin[order.lease] = found_s + 1.0
            after_s = 0.0
        else:
            self.cut_node(node, found_s)
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
            if self.asked(order.lease) is None:  # without a server its lease may have been over
                self._checks.touch([order.lease])
            self._checks.jobs.member_ended(process)
            return
        directory = Path(order.checkpoint_dir).parents[2] / "leases" / str(order.lease)
        ended = lease_dir.read_ended(directory)
        self._checks.jobs.kept(process, ended, asked=self.asked(order.lease))

    def end_leftovers(self, lease: int) -> bool:
        """Kill what a dead keeper has left; tell whether any of it is there yet."""
        left = [one for one in self.members() if one.lease == lease]
        for member in left:
            self._machine.kill(member)
        return bool(left)

    # -- members --------------------------------------------------------------------------------

    def spawn_member(self, command: Any, *, env: Mapping[str, str], **_: Any) -> Process:
        """Stand in for ``subprocess.Popen``."""
        parent = self._machine.me
        assert parent is not None
        assert parent.order is not None
        rank = int(env["FAIRLEAD_RANK"])
        cut = self._machine.cut
        # The engine starts nothing on nodes it reaches for a gang that it has given up.
        given_up = bool(parent.nodes & cut) and parent.order.devices[rank][0] not in cut
        fails = self.fails_to_start > 0 and rank >= self.fails_from_rank
        if fails or given_up:
            self._checks.touch([parent.lease])
            if fails:
                self.fails_to_start -= 1
                if self.fails_for_want:
                    self._checks.not_started[parent.lease] = "lost"
                    raise OSError(errno.ENOMEM, "no memory for another process")
            self._checks.truth[parent.order.job].crashes += 1
            self._checks.not_started[parent.lease] = "failed"
            raise OSError("it cannot be started")
        train = command[0] == "train"
        if parent.order.job in self.damaged:
            self._checks.touch([parent.lease])
        process = self._machine.spawn(
            f"lease {parent.lease} rank {rank}",
            lambda me: self._train(me, env) if train else self._just_run(float(command[1])),
            parent=parent,
            nodes=parent.nodes,
        )
        process.order, process.rank = parent.order, rank
        self._checks.jobs.started(process)
        return process

    def _just_run(self, for_s: float) -> None:
        """Be a job without the library: it is done after a while."""
        self._machine.fibres.sleep(for_s)

    def _train(self, me: Process, env: Mapping[str, str]) -> None:
        order = me.order
        assert order is not None
        fibres = self._machine.fibres
        if len(order.devices) > 1:  # its members take a while to load, not equally long
            fibres.sleep(self._rng.choice((0.0, 0.0, 0.3, 1.0)))
        me.began_at = self._machine.loop.time()
        me.valid_until = me.began_at + float(env["FAIRLEAD_LEASE_S"])
        me.asks_by = me.began_at
        run = LeasedRun(order.lease, env)
        model = {"made": 0, "chain": 0, "rank": me.rank, "fresh": 1}
        # One kind of job keeps its state in a dict, the other in an object.
        run.register(model=model if (order.total_steps or 0) % 2 else _Model(model))
        if run.steps_done == 0:
            del model["fresh"]
        self._checks.jobs.began(me, model, run.steps_done)
        model["rank"] = me.rank
        gang = len(order.devices)
        if gang > 1 and order.lease not in self._met:
            self._met[order.lease] = _Barrier(self._machine.fibres.event, gang)
        for i in _in_epochs(run, order.total_steps or 0):
            self._checks.jobs.stepped(me, i + 1)
            more_s = self.slow_s.get(order.job)
            if more_s:
                self._checks.touch([order.lease])
                fibres.sleep(more_s)
            if gang > 1:  # its members are not equally fast
                fibres.sleep(self._rng.uniform(0.0, 0.1))
                self._met[order.lease].meet(me.rank, i)
                fibres.sleep(self._rng.uniform(0.0, 0.3))
            model["chain"] = (model["chain"] * 1_103_515_245 + i + 12_345) & 0x7FFF_FFFF
            model["made"] += 1
            if (i + 1) % _EPOCH == 0 and (order.total_steps or 0) % _EPOCH == 0:
                me.ends_epoch = i + 1
            if me.rank == 0:
                self._checks.made[order.lease] = model["made"]
            if (order.total_steps or 0) % 4 == 0 and i % 3 == 1:
                run.checkpoint()
                me.wants_saved = model["made"]


def _in_epochs(run: LeasedRun, total: int) -> Iterator[int]:
    """Yield the steps still to make; of some jobs one epoch after the other, as training does."""
    if total % _EPOCH:
        yield from run.steps(range(total))
        return
    for first in range(0, total, _EPOCH):
        yield from run.steps(range(first, first + _EPOCH))


class _Model:
    """What training libraries have: an object that gives and takes its state."""

    def __init__(self, state: dict[str, int]) -> None:
        self._state = state

    def state_dict(self) -> dict[str, int]:
        return self._state

    def load_state_dict(self, state: dict[str, int]) -> None:
        self._state.clear()
        self._state.update(state)


class _Barrier:
    """A collective operation: nobody goes on before all members of the gang are there."""

    def __init__(self, event: Callable[[], Event], gang: int) -> None:
        self._make = event
        self._all = event()
        self._gang = gang
        self._there: dict[int, int] = {}

    def meet(self, rank: int, step: int) -> None:
        """Wait until all ranks have come to this step."""
        self._there[rank] = step
        if len(self._there) == self._gang and min(self._there.values()) >= step:
            self._all.set()
            self._all = self._make()
            return
        while len(self._there) < self._gang or min(self._there.values()) < step:
            self._all.wait()


def _allowed(environment: Mapping[str, str], gang: int) -> dict[str, int] | None:
    found = environment.get("ALLOWED")
    if not found:
        return None
    each = (one.partition("=") for one in found.split(","))
    return {kind: int(count or gang) for kind, _, count in each}
