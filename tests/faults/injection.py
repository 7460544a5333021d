"""What goes wrong, and what operators do meanwhile."""

import pickle
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tests.faults.machine.machine import Process
from tests.faults.operators import (
    act,
    cordon,
    drain,
    give_back,
    one_of,
    submit,
)
from tests.faults.scenario import ACTIONS, ENDLESS, Fault

from fairlead.job import checkpoint

_LONG_S = 4.0

if TYPE_CHECKING:
    from tests.faults.world import World

_FOREVER_S = 4.0
"""others who stay for less take all of a node, and one device otherwise"""

# -- what goes wrong ----------------------------------------------------------------------------


def _server_dies(world: "World", happening: Fault) -> None:
    world.kill_server(happening.for_s)


def _server_dies_at_a_gate(world: "World", happening: Fault) -> None:
    if world.server is not None:
        world.server.dies_at = int(happening.pick * 30)


def _server_dies_at_a_stop(world: "World", happening: Fault) -> None:
    del happening
    if world.server is not None:
        world.server.dies_at_stop = True


def _server_dies_as_a_keeper_begins(world: "World", happening: Fault) -> None:
    world.dies_at_begin = happening.for_s / 4.0


def _another_server_starts(world: "World", happening: Fault) -> None:
    del happening
    world.start_another()


def _process_dies_at_a_point(world: "World", happening: Fault) -> None:
    world.dies_at_point = int(happening.pick * 12)


def _keeper_begins_late(world: "World", happening: Fault) -> None:
    world.jobs.late = happening
    world.client(submit, ENDLESS)  # what leaves of itself would not need to be stopped


def _server_stops(world: "World", happening: Fault) -> None:
    server = world.server
    if server is None or not server.started:
        return
    world.touch_leaving()

    for keeper in world.jobs.keepers():
        if signal.SIGTERM in keeper.handlers:  # who stops it by Ctrl-C reaches those that listen
            world.machine.send(keeper, signal.SIGINT)

    async def stop() -> None:
        world.network.server = None
        await server.live.stop()
        if world.server is server:
            world.kill_server(happening.for_s)

    task = world.loop.create_task(stop())
    world.background.add(task)
    task.add_done_callback(world.background.discard)


def _store_fails(world: "World", happening: Fault) -> None:
    if world.server is not None:
        world.server.next_write = ("before", "after")[int(2 * happening.pick)]


def _power_fails(world: "World", happening: Fault) -> None:
    world.touch()
    world.kill_server(happening.for_s)
    world.machine.end_all()
    for path in world.disk.lose_power():
        world.checks.jobs.undone(path)


def _crash(world: "World", victims: Sequence[Process]) -> None:
    for process in victims:
        world.checks.touch([process.lease])
        if process.rank >= 0:
            world.checks.crashed.add(process.lease)
        world.machine.kill(process)


def _member_dies(world: "World", happening: Fault) -> None:
    victim = one_of(world.jobs.members(), happening)
    _crash(world, [] if victim is None else [victim])


def _keeper_dies(world: "World", happening: Fault) -> None:
    victim = one_of(world.jobs.keepers(), happening)
    _crash(world, [] if victim is None else [victim])


def _gang_dies(world: "World", happening: Fault) -> None:
    victim = one_of(world.jobs.members(), happening)
    if victim is not None:
        _crash(world, [one for one in world.jobs.members() if one.lease == victim.lease])


def _job_is_cut_off(world: "World", happening: Fault) -> None:
    job = one_of(sorted(world.checks.acknowledged), happening)
    if job is not None:
        world.touch()
        world.network.cut_jobs.add(job)
        world.loop.call_later(5 * happening.for_s, _reach_job, world, job)


def _reach_job(world: "World", job: str) -> None:
    world.touch()
    world.network.cut_jobs.discard(job)


def _node_is_cut_off(world: "World", happening: Fault) -> None:
    node = one_of([node.id for node in world.nodes.cluster.nodes], happening)
    # For longer than a lease, or so short that its members are still there.
    for_s = happening.for_s
    world.nodes.cut(node, 3 * for_s if for_s < _LONG_S else for_s - _LONG_S)


def _node_blinks(world: "World", happening: Fault) -> None:
    """Lose a node for a moment: members live on, reach the server, and hear that all is over."""
    node = one_of([node.id for node in world.nodes.cluster.nodes], happening)
    world.nodes.cut(node, happening.for_s / 100.0)


def _no_descriptor_is_left(world: "World", happening: Fault) -> None:
    del happening
    if world.server is not None:
        world.server.no_descriptor = True


def _node_is_back_before_the_server(world: "World", happening: Fault) -> None:
    node = one_of([node.id for node in world.nodes.cluster.nodes], happening)
    world.nodes.cut(node, happening.for_s)
    world.loop.call_later(0.7 * happening.for_s, world.kill_server, happening.for_s)


def _node_is_taken_back_too_early(world: "World", happening: Fault) -> None:
    """Have an operator take back a drained node that nobody reaches, just after a restart."""
    node = one_of([node.id for node in world.nodes.cluster.nodes], happening)
    world.nodes.cut(node, 2.0 + happening.for_s)
    world.client(drain, node, 2.0 * happening.for_s)
    world.loop.call_later(0.6, world.kill_server, 0.3)
    world.loop.call_later(1.0, world.client, give_back, node)


def _others_come(world: "World", happening: Fault) -> None:
    node = one_of(world.nodes.cluster.nodes, happening)
    every = range(len(node.devices))
    numbers = tuple(every) if happening.for_s < _FOREVER_S else tuple(every[:1])
    world.nodes.take(node.id, numbers)
    world.loop.call_later(2 * happening.for_s, world.nodes.take, node.id, ())


def _node_closes_as_a_plan_is_made(world: "World", happening: Fault) -> None:
    """Have a node closed to what is new just when a plan would move somebody who runs there."""
    server = world.server
    if server is None:
        return

    def close(stops: list[int]) -> None:
        for node in sorted(server.engine.where(stops[0])):
            if int(4.0 * happening.for_s) % 2:
                world.client(cordon, node, happening.for_s)
            else:
                world.nodes.take(node, (0,))
                world.loop.call_later(happening.for_s, world.nodes.take, node, ())

    server.on_moves = close


def _node_joins(world: "World", happening: Fault) -> None:
    world.nodes.join_like(one_of(world.nodes.cluster.nodes, happening).id)


def _node_is_missing(world: "World", happening: Fault) -> None:
    """Have the next server find a node gone, or with other devices than it had."""
    name = one_of(world.nodes.cluster.nodes, happening).id
    world.nodes.miss(name, 3.0 * happening.for_s, exchanged=int(8.0 * happening.for_s) % 3 == 0)
    world.kill_server(happening.for_s / 4.0)
    if int(16.0 * happening.for_s) % 2:  # it is there again for the one after, which asks for all
        world.loop.call_later(happening.for_s, world.kill_server, 2.5 * happening.for_s)
    if int(32.0 * happening.for_s) % 2:  # an operator would use it, and nobody can
        world.loop.call_later(happening.for_s / 2.0, world.client, give_back, name)


def _server_is_refused(world: "World", happening: Fault) -> None:
    """Have somebody try to start the next server under rules with which it cannot go on."""
    world.tries_other_configs = True
    world.kill_server(happening.for_s / 4.0)


def _planner_fails(world: "World", happening: Fault) -> None:
    if world.server is not None:
        world.server.plans_fail += 1 + int(2 * happening.pick)


def _disk_is_full(world: "World", happening: Fault) -> None:
    world.touch()
    world.disk.full = world.checks.disk_was_full = True
    world.loop.call_later(happening.for_s, _make_room, world)


def _make_room(world: "World") -> None:
    world.touch()
    world.disk.full = False


def _file_is_damaged(world: "World", happening: Fault) -> None:
    """Put an old state in the place of a checkpoint's, until somebody repairs it."""
    job = one_of(sorted(world.checks.truth), happening)
    if job is None or job in world.jobs.damaged:
        return
    directory = world.home / "jobs" / job / "checkpoint"
    found = checkpoint.latest(str(directory))
    if found is None:
        return
    path = directory / found.files[-1]
    good = path.read_bytes()
    old = pickle.dumps({"model": {"made": 0, "chain": 0, "rank": len(found.files) - 1}})
    path.write_bytes(good[:64] + old)
    world.touch()
    world.jobs.damaged.add(job)
    world.loop.call_later(happening.for_s, _repair, world, job, path, good)


def _repair(world: "World", job: str, path: Path, good: bytes) -> None:
    world.jobs.damaged.discard(job)
    if path.exists():
        path.write_bytes(good)


def _clock_jumps(world: "World", happening: Fault) -> None:
    world.wall_offset += (happening.pick - 0.5) * 10_000.0


def _time_stalls(world: "World", happening: Fault) -> None:
    world.touch()
    for member in world.jobs.members():
        member.stalled_s += happening.for_s  # it cannot leave while nobody runs
    world.loop.stall(happening.for_s)
    for lease in world.checks.broken_at:
        world.checks.broken_at[lease] += happening.for_s


def _job_is_slow(world: "World", happening: Fault) -> None:
    job = one_of(sorted(world.checks.acknowledged), happening)
    if job is not None:
        world.touch()
        world.jobs.slow_s[job] = happening.for_s
        world.loop.call_later(2 * happening.for_s, _hurry, world, job)


def _hurry(world: "World", job: str) -> None:
    world.touch()
    world.jobs.slow_s.pop(job, None)


def _job_cannot_start(world: "World", happening: Fault) -> None:
    world.jobs.fails_to_start += 1 + int(2 * happening.pick)
    world.jobs.fails_from_rank = int(happening.for_s) % 2  # of a gang only the second, perhaps
    world.jobs.fails_for_want = int(2 * happening.for_s) % 2 == 1


FAULT_HANDLERS: dict[str, Callable[["World", Fault], None]] = {
    **dict.fromkeys(ACTIONS, act),
    "server dies": _server_dies,
    "server dies at a gate": _server_dies_at_a_gate,
    "server dies at a stop": _server_dies_at_a_stop,
    "server dies as a keeper begins": _server_dies_as_a_keeper_begins,
    "another server starts": _another_server_starts,
    "process dies at a point": _process_dies_at_a_point,
    "keeper begins late": _keeper_begins_late,
    "server stops": _server_stops,
    "store fails": _store_fails,
    "power fails": _power_fails,
    "member dies": _member_dies,
    "keeper dies": _keeper_dies,
    "gang dies": _gang_dies,
    "job is cut off": _job_is_cut_off,
    "node is cut off": _node_is_cut_off,
    "node blinks": _node_blinks,
    "no descriptor is left": _no_descriptor_is_left,
    "node is back before the server": _node_is_back_before_the_server,
    "node is taken back too early": _node_is_taken_back_too_early,
    "others come": _others_come,
    "node joins": _node_joins,
    "node closes as a plan is made": _node_closes_as_a_plan_is_made,
    "node is missing": _node_is_missing,
    "server is refused": _server_is_refused,
    "planner fails": _planner_fails,
    "disk is full": _disk_is_full,
    "file is damaged": _file_is_damaged,
    "clock jumps": _clock_jumps,
    "time stalls": _time_stalls,
    "job is slow": _job_is_slow,
    "job cannot start": _job_cannot_start,
}
"""what → how it happens"""
