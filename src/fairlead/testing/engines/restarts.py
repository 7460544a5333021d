"""What every engine must do over restarts, many leases, and the loss of nodes."""

import random

from fairlead.engines.base import NodeDown, NodeUp
from fairlead.job import checkpoint
from fairlead.testing.contract import require
from fairlead.testing.engines.bench import Bench, Rig, open_files
from fairlead.testing.engines.scenes import (
    Device,
    check_members,
    devices_of,
    gang_of,
    play,
)


def check_new_engine_adopts_what_runs_and_stops_the_rest(rig: Rig) -> None:
    """After a restart leases go on, strangers are stopped, and what ended meanwhile is told."""

    async def scene(bench: Bench) -> None:
        one, other, short, late = devices_of(rig.cluster)[:4]
        await bench.start(1, [one])
        await bench.start(2, [other])
        await bench.start(3, [short], "wait", 0.1)
        await bench.engine.launch(bench.order(4, [late]))  # the crash comes while it starts
        after = await bench.again()
        await after.engine.adopt([1, 3, 4, 9])
        require((await after.ended(9)).ending == "lost", "a lease that nobody started ended well")
        require((await after.ended(3)).ending == "finished", "what ended meanwhile was lost")
        await after.until(lambda: bench.alive(2) == 0, "the stranger to leave")
        require(bench.left(2) == 1, "the stranger was killed without a word")
        await after.until(
            lambda: bool(after.members(4) or after.ends(4)), "news of the lease that was starting"
        )
        # It may go on or be given up, but nobody may run a lease that was.
        on = [1] if after.ends(4) else [1, 4]
        running = await after.engine.running()
        require(running == set(on), f"running() says {running}, not {on}")
        for lease in on:
            require(after.members(lease)[0]["times"] == 1, f"lease {lease} was started twice")
            require(not after.ends(lease), f"lease {lease} did not go on: {after.ends(lease)}")
            await after.engine.stop(lease)
            require((await after.ended(lease)).ending == "left", "an adopted lease did not leave")
        require(4 in on or not after.members(4), "a lease that was given up ran")
        require(not after.ends(2), "the end of a stranger was reported")
        await after.close()

    play(rig, scene)


def check_no_device_is_used_twice(rig: Rig, *, seed: int = 1, leases: int = 24) -> None:
    """Leases that follow one another on the same devices never meet there."""

    async def scene(bench: Bench) -> None:
        rng = random.Random(seed)
        free, held = devices_of(rig.cluster), dict[int, list[Device]]()
        for lease in range(1, leases + 1):
            while len(free) < 2:
                ending = rng.choice(list(held))
                await bench.engine.stop(ending)
                await bench.ended(ending)
                free += held.pop(ending)
            rng.shuffle(free)
            held[lease] = [free.pop() for _ in range(rng.choice((1, 1, 2)))]
            await bench.engine.launch(bench.order(lease, held[lease]))
        for lease in held:
            await bench.spoken(lease)
        ran = 0
        for lease in bench.orders:
            for told in bench.members(lease).values():
                ran += 1
                require(told["alone"], f"a device of lease {lease} was used by another one, too")
        require(ran >= leases // 2, f"only {ran} members ran")

    play(rig, scene)


def check_fifty_launches_and_stops_leave_nothing_behind(rig: Rig, *, rounds: int = 50) -> None:
    """No process, no open file, nothing in the cluster manager is left."""

    async def scene(bench: Bench) -> None:
        devices = devices_of(rig.cluster)[:4]
        before = -1
        for first in range(1, rounds + 1, len(devices)):
            some = range(first, min(first + len(devices), rounds + 1))
            for lease, where in zip(some, devices, strict=False):
                how = () if lease % 2 else ("exit", 0)
                await bench.engine.launch(bench.order(lease, [where], *how))
            for lease in some:
                await bench.spoken(lease)
                await bench.engine.stop(lease)
                await bench.ended(lease)
            if before < 0 and some[-1] >= rounds // 2:
                before = open_files()
        require(not await bench.engine.running(), f"{await bench.engine.running()} run on")
        for lease in bench.orders:
            require(bench.alive(lease) == 0, f"a process of lease {lease} is left")
        require(open_files() <= before + 2, f"{open_files() - before} files more are open")
        await bench.until(lambda: not rig.leftovers(), f"{rig.leftovers()} to go")

    play(rig, scene)


def check_loss_and_return_of_a_node_are_told(rig: Rig) -> None:
    """A lost node is reported, the gang on it ends, its writers are fenced; then it is back."""
    if rig.lose is None or rig.give_back is None:
        return
    lose, give_back = rig.lose, rig.give_back

    async def scene(bench: Bench) -> None:
        gang = gang_of(rig.cluster)
        victim = gang[1][0]
        order = await bench.start(1, gang)
        other = next(d for d in devices_of(rig.cluster) if d[0] not in {node for node, _ in gang})
        await bench.start(2, [other])
        await lose(victim)
        try:
            await bench.node(NodeDown(victim))
            await bench.engine.stop(1)
            ended = await bench.ended(1)
            require(ended.ending == "lost", f"a gang that lost a node ended {ended.ending}")
            require(checkpoint.fence(order.checkpoint_dir) > 1, "its writers are not fenced off")
            require(2 in await bench.engine.running(), "a lease elsewhere was lost, too")
            downs = [one for one in bench.seen if isinstance(one, NodeDown)]
            require(downs == [NodeDown(victim)], f"also reported: {downs}")
        finally:
            await give_back(victim)
        await bench.node(NodeUp(victim), 120.0)
        await bench.start(3, [gang[1]])
        check_members(bench, bench.orders[3])

    play(rig, scene)
