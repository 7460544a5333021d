"""What every engine must do when leases end, and what it tells of them."""

import asyncio
from pathlib import Path

from fairlead.engines.base import Order, Progressed
from fairlead.job import checkpoint
from fairlead.testing.contract import require
from fairlead.testing.engines.bench import Bench, Rig
from fairlead.testing.engines.scenes import devices_of, gang_of, play


def check_stop_lets_members_save_and_kills_the_deaf(rig: Rig) -> None:
    """Members are told to leave and have their grace; after it they are killed, not before."""

    async def scene(bench: Bench) -> None:
        loop = asyncio.get_running_loop()
        gang = gang_of(rig.cluster)
        await bench.start(1, gang)
        await bench.engine.stop(1)
        ended = await bench.ended(1)
        require(ended.ending == "left", f"a polite gang ended {ended.ending}: {ended.message}")
        require(bench.left(1) == len(gang), f"{bench.left(1)} members were told to leave")
        await bench.start(2, gang, "deaf", grace_s=2.0)
        began = loop.time()
        await bench.engine.stop(2)
        ended = await bench.ended(2)
        taken = loop.time() - began
        require(ended.ending == "left", f"a deaf gang ended {ended.ending}: {ended.message}")
        require(1.9 < taken < 8.0, f"a grace of 2 s took {taken:.1f} s")
        require(set(ended.exit_codes) == {-9}, f"exit codes are {ended.exit_codes}")
        require(bench.alive(2) == 0, "its processes live")

    play(rig, scene)


def check_ends_are_told_as_they_were(rig: Rig) -> None:
    """Finished, left, failed: with exit codes, and the steps of the checkpoint in force."""

    async def scene(bench: Bench) -> None:
        devices = devices_of(rig.cluster)[:3]
        for lease, (code, ending) in enumerate(
            [(0, "finished"), (85, "left"), (3, "failed")], start=1
        ):
            order = bench.order(lease, [devices[lease - 1]], "exit", code)
            checkpoint.raise_fence(order.checkpoint_dir, lease)
            checkpoint.write(order.checkpoint_dir, lease, 4 + lease, 0, b"")
            checkpoint.commit(order.checkpoint_dir, lease, 4 + lease, 1)
            await bench.engine.launch(order)
            ended = await bench.ended(lease)
            found = (ended.ending, ended.exit_codes, ended.steps)
            wanted = (ending, (code,), 4.0 + lease)
            require(found == wanted, f"exit {code} gave {found}, not {wanted}")
        require(not await bench.engine.running(), "something runs on")

    play(rig, scene)


def check_member_that_fails_ends_its_gang(rig: Rig) -> None:
    """When one member of a gang over nodes fails, the others are told to leave."""

    async def scene(bench: Bench) -> None:
        gang = gang_of(rig.cluster)
        await bench.start(1, gang, "fails-on", len(gang) - 1)
        ended = await bench.ended(1)
        require(ended.ending == "failed", f"the gang ended {ended.ending}")
        require(3 in ended.exit_codes, f"exit codes are {ended.exit_codes}")
        require("3" in ended.message, f"the message does not say why: {ended.message!r}")
        require(bench.left(1) == len(gang) - 1, "the others were not told to leave")

    play(rig, scene)


def check_launch_behind_the_fence_starts_nothing(rig: Rig) -> None:
    """A lease of a job that a later lease may write for is refused."""

    async def scene(bench: Bench) -> None:
        order = bench.order(3, devices_of(rig.cluster)[:1])
        checkpoint.raise_fence(order.checkpoint_dir, 9)
        await bench.engine.launch(order)
        ended = await bench.ended(3)
        require(ended.ending == "refused", f"it ended {ended.ending}")
        require(not bench.members(3), "its processes were started")

    play(rig, scene)


def check_output_and_progress_can_be_followed(rig: Rig) -> None:
    """What members print is in the log directory while they run; steps in it are reported."""

    async def scene(bench: Bench) -> None:
        gang = gang_of(rig.cluster)
        order = await bench.start(1, gang, progress_pattern=r"step (\d+)")

        def spoken() -> bool:
            return all(f"member {rank} of" in _log(order, rank) for rank in range(len(gang)))

        await bench.until(spoken, "the logs of all members")
        await bench.until(lambda: Progressed(1, 3.0) in bench.seen, "the report of progress")
        await bench.engine.stop(1)
        ended = await bench.ended(1)
        require(ended.steps == 3.0, f"the steps it printed are {ended.steps}")
        require(spoken(), "the logs are gone")

    play(rig, scene)


def _log(order: Order, rank: int) -> str:
    path = Path(order.log_dir) / f"{order.lease}.{rank}.log"
    return path.read_text(encoding="utf-8") if path.exists() else ""
