"""Engine checks: the ends of leases and their reports."""

import asyncio
from pathlib import Path

from fairlead.engines.base import LaunchOrder, Progressed
from fairlead.job import checkpoint
from fairlead.testing.contract import require
from fairlead.testing.engines.harness import EngineFixture, EngineHarness
from fairlead.testing.engines.scenarios import devices_of, gang_of, run_scenario


def check_stop_grants_the_grace_period_before_killing(fixture: EngineFixture) -> None:
    """Members get a stop request and are killed only after their grace period."""

    async def scenario(harness: EngineHarness) -> None:
        loop = asyncio.get_running_loop()
        gang = gang_of(fixture.cluster)
        await harness.start(1, gang)
        await harness.engine.stop(1)
        ended = await harness.ended(1)
        require(
            ended.ending == "left",
            f"a gang that handles SIGTERM ended {ended.ending}: {ended.message}",
        )
        require(
            harness.members_left(1) == len(gang),
            f"{harness.members_left(1)} members got the stop request",
        )
        await harness.start(2, gang, "deaf", grace_s=2.0)
        began = loop.time()
        await harness.engine.stop(2)
        ended = await harness.ended(2)
        took_s = loop.time() - began
        require(
            ended.ending == "left",
            f"a gang that ignores SIGTERM ended {ended.ending}: {ended.message}",
        )
        require(1.9 < took_s < 8.0, f"a grace period of 2 s took {took_s:.1f} s")
        require(set(ended.exit_codes) == {-9}, f"exit codes are {ended.exit_codes}")
        require(harness.alive(2) == 0, "processes of the ended lease are alive")

    run_scenario(fixture, scenario)


def check_outcomes_are_reported(fixture: EngineFixture) -> None:
    """Finished, left and failed leases are reported with exit codes and checkpointed steps."""

    async def scenario(harness: EngineHarness) -> None:
        devices = devices_of(fixture.cluster)[:3]
        for lease, (code, ending) in enumerate(
            [(0, "finished"), (85, "left"), (3, "failed")], start=1
        ):
            order = harness.order(lease, [devices[lease - 1]], "exit", code)
            checkpoint.raise_fence(order.checkpoint_dir, lease)
            checkpoint.write(order.checkpoint_dir, lease, 4 + lease, 0, b"")
            checkpoint.commit(order.checkpoint_dir, lease, 4 + lease, 1)
            await harness.engine.launch(order)
            ended = await harness.ended(lease)
            outcome = (ended.ending, ended.exit_codes, ended.steps)
            wanted = (ending, (code,), 4.0 + lease)
            require(outcome == wanted, f"exit {code} gave {outcome}, expected {wanted}")
        require(not await harness.engine.running(), "a lease is still running")

    run_scenario(fixture, scenario)


def check_failed_member_ends_its_gang(fixture: EngineFixture) -> None:
    """A failed member of a gang over nodes makes the others leave."""

    async def scenario(harness: EngineHarness) -> None:
        gang = gang_of(fixture.cluster)
        await harness.start(1, gang, "fails-on", len(gang) - 1)
        ended = await harness.ended(1)
        require(ended.ending == "failed", f"the gang ended {ended.ending}")
        require(3 in ended.exit_codes, f"exit codes are {ended.exit_codes}")
        require("3" in ended.message, f"the message lacks the exit code: {ended.message!r}")
        require(harness.members_left(1) == len(gang) - 1, "the other members got no stop request")

    run_scenario(fixture, scenario)


def check_fenced_launch_starts_nothing(fixture: EngineFixture) -> None:
    """A lease below the job's fence is refused."""

    async def scenario(harness: EngineHarness) -> None:
        order = harness.order(3, devices_of(fixture.cluster)[:1])
        checkpoint.raise_fence(order.checkpoint_dir, 9)
        await harness.engine.launch(order)
        ended = await harness.ended(3)
        require(ended.ending == "refused", f"it ended {ended.ending}")
        require(not harness.members(3), "its processes were started")

    run_scenario(fixture, scenario)


def check_output_and_progress_are_visible(fixture: EngineFixture) -> None:
    """Members' output is in the log directory while they run, and printed steps are reported."""

    async def scenario(harness: EngineHarness) -> None:
        gang = gang_of(fixture.cluster)
        order = await harness.start(1, gang, progress_pattern=r"step (\d+)")

        def logged() -> bool:
            return all(f"member {rank} of" in _log(order, rank) for rank in range(len(gang)))

        await harness.until(logged, "the logs of all members")
        await harness.until(lambda: Progressed(1, 3.0) in harness.seen, "the report of progress")
        await harness.engine.stop(1)
        ended = await harness.ended(1)
        require(ended.steps == 3.0, f"the printed steps are {ended.steps}, expected 3")
        require(logged(), "the logs are gone")

    run_scenario(fixture, scenario)


def _log(order: LaunchOrder, rank: int) -> str:
    path = Path(order.log_dir) / f"{order.lease}.{rank}.log"
    return path.read_text(encoding="utf-8") if path.exists() else ""
