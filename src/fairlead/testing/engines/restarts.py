"""Engine checks: restarts, many leases, and the loss of nodes."""

import random

from fairlead.engines.base import NodeDown, NodeUp
from fairlead.job import checkpoint
from fairlead.testing.contract import require
from fairlead.testing.engines.harness import EngineFixture, EngineHarness, open_files
from fairlead.testing.engines.scenarios import (
    Device,
    check_members,
    devices_of,
    gang_of,
    run_scenario,
)


def check_restart_adopts_leases_and_stops_orphans(fixture: EngineFixture) -> None:
    """A restarted engine adopts leases, stops orphans and reports leases that ended meanwhile."""

    async def scenario(harness: EngineHarness) -> None:
        first, second, short, late = devices_of(fixture.cluster)[:4]
        await harness.start(1, [first])
        await harness.start(2, [second])
        await harness.start(3, [short], "wait", 0.1)
        await harness.engine.launch(
            harness.order(4, [late])
        )  # the restart comes during this launch
        after = await harness.restarted()
        await after.engine.adopt([1, 3, 4, 9])
        require(
            (await after.ended(9)).ending == "lost", "a lease that was never started is not lost"
        )
        require(
            (await after.ended(3)).ending == "finished", "a lease that finished meanwhile was lost"
        )
        await after.until(lambda: harness.alive(2) == 0, "the orphan to leave")
        require(harness.members_left(2) == 1, "the orphan was killed without a stop request")
        await after.until(
            lambda: bool(after.members(4) or after.ends(4)), "a report of the starting lease"
        )
        # The starting lease may continue or be lost, but a lost lease must not run.
        expected = [1] if after.ends(4) else [1, 4]
        running = await after.engine.running()
        require(running == set(expected), f"running() returns {running}, expected {expected}")
        for lease in expected:
            require(after.members(lease)[0]["times"] == 1, f"lease {lease} was started twice")
            require(not after.ends(lease), f"lease {lease} did not continue: {after.ends(lease)}")
            await after.engine.stop(lease)
            require((await after.ended(lease)).ending == "left", "an adopted lease did not leave")
        require(4 in expected or not after.members(4), "a lost lease ran")
        require(not after.ends(2), "the end of an orphan was reported")
        await after.close()

    run_scenario(fixture, scenario)


def check_no_device_is_used_twice(
    fixture: EngineFixture, *, seed: int = 1, leases: int = 24
) -> None:
    """Consecutive leases on the same devices never overlap."""

    async def scenario(harness: EngineHarness) -> None:
        rng = random.Random(seed)
        free, held = devices_of(fixture.cluster), dict[int, list[Device]]()
        for lease in range(1, leases + 1):
            while len(free) < 2:
                ending = rng.choice(list(held))
                await harness.engine.stop(ending)
                await harness.ended(ending)
                free += held.pop(ending)
            rng.shuffle(free)
            held[lease] = [free.pop() for _ in range(rng.choice((1, 1, 2)))]
            await harness.engine.launch(harness.order(lease, held[lease]))
        for lease in held:
            await harness.wait_for_members(lease)
        ran = 0
        for lease in harness.orders:
            for report in harness.members(lease).values():
                ran += 1
                require(report["alone"], f"a device of lease {lease} was used twice")
        require(ran >= leases // 2, f"only {ran} members ran")

    run_scenario(fixture, scenario)


def check_repeated_launches_leak_nothing(fixture: EngineFixture, *, rounds: int = 50) -> None:
    """Launches and stops leak no process, file or object in the cluster manager."""

    async def scenario(harness: EngineHarness) -> None:
        devices = devices_of(fixture.cluster)[:4]
        before = -1
        for first in range(1, rounds + 1, len(devices)):
            some = range(first, min(first + len(devices), rounds + 1))
            for lease, device in zip(some, devices, strict=False):
                arguments = () if lease % 2 else ("exit", 0)
                await harness.engine.launch(harness.order(lease, [device], *arguments))
            for lease in some:
                await harness.wait_for_members(lease)
                await harness.engine.stop(lease)
                await harness.ended(lease)
            if before < 0 and some[-1] >= rounds // 2:
                before = open_files()
        require(
            not await harness.engine.running(), f"still running: {await harness.engine.running()}"
        )
        for lease in harness.orders:
            require(harness.alive(lease) == 0, f"a process of lease {lease} is left")
        require(open_files() <= before + 2, f"{open_files() - before} files were left open")
        await harness.until(lambda: not fixture.orphans(), f"{fixture.orphans()} to disappear")

    run_scenario(fixture, scenario)


def check_node_loss_and_return_are_reported(fixture: EngineFixture) -> None:
    """A lost node is reported, its gang ends and is fenced; later its return is reported."""
    if fixture.lose is None or fixture.return_node is None:
        return
    lose, return_node = fixture.lose, fixture.return_node

    async def scenario(harness: EngineHarness) -> None:
        gang = gang_of(fixture.cluster)
        victim = gang[1][0]
        order = await harness.start(1, gang)
        other = next(
            d for d in devices_of(fixture.cluster) if d[0] not in {node for node, _ in gang}
        )
        await harness.start(2, [other])
        await lose(victim)
        try:
            await harness.node(NodeDown(victim))
            await harness.engine.stop(1)
            ended = await harness.ended(1)
            require(ended.ending == "lost", f"a gang that lost a node ended {ended.ending}")
            require(checkpoint.fence(order.checkpoint_dir) > 1, "its writers are not fenced")
            require(2 in await harness.engine.running(), "a lease on another node was lost")
            downs = [report for report in harness.seen if isinstance(report, NodeDown)]
            require(downs == [NodeDown(victim)], f"also reported: {downs}")
        finally:
            await return_node(victim)
        await harness.node(NodeUp(victim), 120.0)
        await harness.start(3, [gang[1]])
        check_members(harness, harness.orders[3])

    run_scenario(fixture, scenario)
