"""Merges by a live server: steps of lost copies count, and parts leave the last step."""

import asyncio
import math
from pathlib import Path

from tests.support.waiting import eventually
from tests.unit.live.scripted_live import ScriptedLive, scripted_live

from fairlead.job import checkpoint
from fairlead.job.state_format import encode_state
from fairlead.live.copies.parts import limited_part
from fairlead.live.leases.open_leases import OpenLease


def copy(lease: int, max_steps: float, job: str = "a") -> OpenLease:
    made = OpenLease(lease, job, 1, math.inf)
    made.copy, made.max_steps = 1, max_steps
    return made


def test_a_part_leaves_the_steps_of_other_copies_and_the_last_one() -> None:
    own = copy(1, 40.0)
    leases = {1: own, 2: copy(2, 30.0), 3: copy(3, 90.0, job="b")}
    assert limited_part(own, 100, 0, leases) == 40.0
    assert limited_part(own, 100, 39, leases) == 30.0  # the plan knew of fewer saved steps
    assert limited_part(own, 100, 80, leases) == 0.0


async def copies(site: ScriptedLive, job: str, but: frozenset[int] = frozenset()) -> list[int]:
    def leases() -> list[int]:
        opened = site.live.leases.values()
        return [
            one.number for one in opened if one.job == job and one.copy and one.number not in but
        ]

    def both() -> list[int]:
        return leases() if len(leases()) == 2 and {*leases()} <= {*site.engine.open} else []

    return await eventually(both, "the job does not train in copies")


def test_steps_that_lost_copies_have_saved_count_once(tmp_path: Path) -> None:
    async def scene() -> None:
        async with scripted_live(tmp_path, policy="hadare:restart-s=0.1") as site:
            live = site.live
            job = await site.submit(steps=1000, max_copies=2)
            first = await copies(site, job)
            for lease, steps in zip(first, (30, 20), strict=True):
                directory = f"{live.orders.copies_dir(job)}/{lease}"
                checkpoint.raise_fence(directory, lease)
                checkpoint.write(directory, lease, steps, 0, encode_state({}))
                checkpoint.commit(directory, lease, steps, 1)
            site.engine.end(first[0], "left", steps=30.0)
            site.engine.end(first[1], "lost")
            number = live.queries.job_number(job)
            await eventually(
                lambda: live.queries.saved_steps(number) == 50.0, "the steps do not count"
            )
            committed = checkpoint.latest(live.orders.checkpoint_dir(job))
            assert committed is not None
            assert (committed.steps, committed.weights) == (50, (30, 20))

    asyncio.run(scene())
