"""Fault handlers: each injects one kind of fault into the simulated world."""

import signal
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.faults.context import FaultContext
from tests.faults.machine.machine import Process
from tests.faults.operators import (
    cordon,
    drain,
    perform_action,
    pick_target,
    return_node,
    submit,
)
from tests.faults.scenario import ACTIONS, ENDLESS, MERGE_FAULT, Fault

from fairlead.job import checkpoint
from fairlead.job.state_format import encode_state

_MIN_LONG_CUT_S = 4.0

_MIN_PARTIAL_S = 4.0
"""seconds; shorter occupations take all devices of a node, longer ones a single device"""

# -- faults -------------------------------------------------------------------------------------


def _server_dies(world: FaultContext, fault: Fault) -> None:
    world.kill_server(fault.for_s)


def _server_dies_at_a_gate(world: FaultContext, fault: Fault) -> None:
    if world.server is not None:
        world.server.dies_at = int(fault.pick * 30)


def _server_dies_at_a_stop(world: FaultContext, fault: Fault) -> None:
    del fault
    if world.server is not None:
        world.server.dies_at_stop = True


def _server_dies_at_a_merge(world: FaultContext, fault: Fault) -> None:
    world.dies_at_merge = int(fault.pick * 6)


def _server_dies_as_a_keeper_begins(world: FaultContext, fault: Fault) -> None:
    world.dies_at_begin = fault.for_s / 4.0


def _another_server_starts(world: FaultContext, fault: Fault) -> None:
    del fault
    world.start_another()


def _process_dies_at_a_point(world: FaultContext, fault: Fault) -> None:
    world.dies_at_point = int(fault.pick * 12)


def _keeper_begins_late(world: FaultContext, fault: Fault) -> None:
    world.jobs.late = fault
    world.client(submit, ENDLESS)  # a job that must be stopped by the engine


def _server_stops(world: FaultContext, fault: Fault) -> None:
    server = world.server
    if server is None or not server.started:
        return
    world.touch_leaving()

    for keeper in world.jobs.keepers():
        if signal.SIGTERM in keeper.handlers:  # Ctrl-C reaches the whole process group
            world.machine.send(keeper, signal.SIGINT)

    async def stop() -> None:
        world.network.server = None
        await server.live.stop()
        if world.server is server:
            world.kill_server(fault.for_s)

    task = world.loop.create_task(stop())
    world.background.add(task)
    task.add_done_callback(world.background.discard)


def _store_fails(world: FaultContext, fault: Fault) -> None:
    if world.server is not None:
        world.server.next_write = ("before", "after")[int(2 * fault.pick)]


def _power_fails(world: FaultContext, fault: Fault) -> None:
    world.touch()
    world.kill_server(fault.for_s)
    world.machine.end_all()
    for path in world.disk.lose_power():
        world.checks.jobs.undone(path)


def _crash(world: FaultContext, victims: Sequence[Process]) -> None:
    for process in victims:
        world.checks.touch([process.lease])
        if process.rank >= 0:
            world.checks.crashed.add(process.lease)
        world.machine.kill(process)


def _member_dies(world: FaultContext, fault: Fault) -> None:
    victim = pick_target(world.jobs.members(), fault)
    _crash(world, [] if victim is None else [victim])


def _keeper_dies(world: FaultContext, fault: Fault) -> None:
    victim = pick_target(world.jobs.keepers(), fault)
    _crash(world, [] if victim is None else [victim])


def _gang_dies(world: FaultContext, fault: Fault) -> None:
    victim = pick_target(world.jobs.members(), fault)
    if victim is not None:
        _crash(world, [member for member in world.jobs.members() if member.lease == victim.lease])


def _job_is_disconnected(world: FaultContext, fault: Fault) -> None:
    job = pick_target(sorted(world.checks.acknowledged), fault)
    if job is not None:
        world.touch()
        world.network.cut_jobs.add(job)
        world.loop.call_later(5 * fault.for_s, _reach_job, world, job)


def _reach_job(world: FaultContext, job: str) -> None:
    world.touch()
    world.network.cut_jobs.discard(job)


def _node_is_disconnected(world: FaultContext, fault: Fault) -> None:
    node = pick_target([node.id for node in world.nodes.cluster.nodes], fault)
    # For longer than a lease, or so briefly that the node's members survive.
    for_s = fault.for_s
    world.nodes.cut(node, 3 * for_s if for_s < _MIN_LONG_CUT_S else for_s - _MIN_LONG_CUT_S)


def _node_blinks(world: FaultContext, fault: Fault) -> None:
    """Lose a node for a moment: its members survive and learn that their leases are lost."""
    node = pick_target([node.id for node in world.nodes.cluster.nodes], fault)
    world.nodes.cut(node, fault.for_s / 100.0)


def _no_descriptor_is_left(world: FaultContext, fault: Fault) -> None:
    del fault
    if world.server is not None:
        world.server.no_descriptor = True


def _node_is_back_before_the_server(world: FaultContext, fault: Fault) -> None:
    node = pick_target([node.id for node in world.nodes.cluster.nodes], fault)
    world.nodes.cut(node, fault.for_s)
    world.loop.call_later(0.7 * fault.for_s, world.kill_server, fault.for_s)


def _node_is_returned_too_early(world: FaultContext, fault: Fault) -> None:
    """Return a drained, unreachable node just after a restart."""
    node = pick_target([node.id for node in world.nodes.cluster.nodes], fault)
    world.nodes.cut(node, 2.0 + fault.for_s)
    world.client(drain, node, 2.0 * fault.for_s)
    world.loop.call_later(0.6, world.kill_server, 0.3)
    world.loop.call_later(1.0, world.client, return_node, node)


def _devices_are_taken(world: FaultContext, fault: Fault) -> None:
    node = pick_target(world.nodes.cluster.nodes, fault)
    devices = range(len(node.devices))
    numbers = tuple(devices) if fault.for_s < _MIN_PARTIAL_S else tuple(devices[:1])
    world.nodes.take(node.id, numbers)
    world.loop.call_later(2 * fault.for_s, world.nodes.take, node.id, ())


def _node_closes_as_a_plan_is_made(world: FaultContext, fault: Fault) -> None:
    """Close a node just as a plan moves a job away from it."""
    server = world.server
    if server is None:
        return

    def close(stops: list[int]) -> None:
        for node in sorted(server.engine.where(stops[0])):
            if int(4.0 * fault.for_s) % 2:
                world.client(cordon, node, fault.for_s)
            else:
                world.nodes.take(node, (0,))
                world.loop.call_later(fault.for_s, world.nodes.take, node, ())

    server.on_moves = close


def _node_joins(world: FaultContext, fault: Fault) -> None:
    world.nodes.join_like(pick_target(world.nodes.cluster.nodes, fault).id)


def _node_is_missing(world: FaultContext, fault: Fault) -> None:
    """Hide a node from the next server, or change its devices."""
    name = pick_target(world.nodes.cluster.nodes, fault).id
    world.nodes.hide_node(name, 3.0 * fault.for_s, replaced=int(8.0 * fault.for_s) % 3 == 0)
    world.kill_server(fault.for_s / 4.0)
    if int(16.0 * fault.for_s) % 2:  # the node is back for the server after the next
        world.loop.call_later(fault.for_s, world.kill_server, 2.5 * fault.for_s)
    if int(32.0 * fault.for_s) % 2:  # an operator tries to return the missing node
        world.loop.call_later(fault.for_s / 2.0, world.client, return_node, name)


def _server_is_refused(world: FaultContext, fault: Fault) -> None:
    """Try to start the next server with scheduling configs that it must refuse."""
    world.refuse_next_config = True
    world.kill_server(fault.for_s / 4.0)


def _planner_fails(world: FaultContext, fault: Fault) -> None:
    if world.server is not None:
        world.server.plans_fail += 1 + int(2 * fault.pick)


def _disk_is_full(world: FaultContext, fault: Fault) -> None:
    world.touch()
    world.disk.full = world.checks.disk_was_full = True
    world.loop.call_later(fault.for_s, _make_room, world)


def _make_room(world: FaultContext) -> None:
    world.touch()
    world.disk.full = False


def _file_is_damaged(world: FaultContext, fault: Fault) -> None:
    """Replace a checkpoint file by an old state, and repair it later."""
    job = pick_target(sorted(world.checks.truth), fault)
    if job is None or job in world.jobs.damaged or world.checks.truth[job].copies:
        return
    directory = world.home / "jobs" / job / "checkpoint"
    latest = checkpoint.latest(str(directory))
    if latest is None:
        return
    path = directory / latest.files[-1]
    good = path.read_bytes()
    old = encode_state({"model": {"made": 0, "chain": 0, "rank": len(latest.files) - 1}})
    path.write_bytes(good[:64] + old)
    world.touch()
    world.jobs.damaged.add(job)
    world.loop.call_later(fault.for_s, _repair, world, job, path, good)


def _repair(world: FaultContext, job: str, path: Path, good: bytes) -> None:
    world.jobs.damaged.discard(job)
    if path.exists():
        path.write_bytes(good)


def _clock_jumps(world: FaultContext, fault: Fault) -> None:
    world.wall_offset += (fault.pick - 0.5) * 10_000.0


def _time_stalls(world: FaultContext, fault: Fault) -> None:
    world.touch()
    for member in world.jobs.members():
        member.stalled_s += fault.for_s  # no process runs during the stall
    world.loop.stall(fault.for_s)
    for lease in world.checks.broken_at:
        world.checks.broken_at[lease] += fault.for_s


def _job_is_slow(world: FaultContext, fault: Fault) -> None:
    job = pick_target(sorted(world.checks.acknowledged), fault)
    if job is not None:
        world.touch()
        world.jobs.slow_s[job] = fault.for_s
        world.loop.call_later(2 * fault.for_s, _hurry, world, job)


def _hurry(world: FaultContext, job: str) -> None:
    world.touch()
    world.jobs.slow_s.pop(job, None)


def _job_cannot_start(world: FaultContext, fault: Fault) -> None:
    world.jobs.fails_to_start += 1 + int(2 * fault.pick)
    world.jobs.fails_from_rank = int(fault.for_s) % 2  # optionally lets rank 0 of a gang start
    world.jobs.fails_for_memory = int(2 * fault.for_s) % 2 == 1


FAULT_HANDLERS: dict[str, Callable[[FaultContext, Fault], None]] = {
    **dict.fromkeys(ACTIONS, perform_action),
    "server dies": _server_dies,
    "server dies at a gate": _server_dies_at_a_gate,
    "server dies at a stop": _server_dies_at_a_stop,
    "server dies as a keeper begins": _server_dies_as_a_keeper_begins,
    MERGE_FAULT: _server_dies_at_a_merge,
    "another server starts": _another_server_starts,
    "process dies at a point": _process_dies_at_a_point,
    "keeper begins late": _keeper_begins_late,
    "server stops": _server_stops,
    "store fails": _store_fails,
    "power fails": _power_fails,
    "member dies": _member_dies,
    "keeper dies": _keeper_dies,
    "gang dies": _gang_dies,
    "job is disconnected": _job_is_disconnected,
    "node is disconnected": _node_is_disconnected,
    "node blinks": _node_blinks,
    "no descriptor is left": _no_descriptor_is_left,
    "node is back before the server": _node_is_back_before_the_server,
    "node is returned too early": _node_is_returned_too_early,
    "devices are taken": _devices_are_taken,
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
"""fault name → handler"""
