"""Speeds that packed jobs measure count for the pair, and undo a pair that does not pay."""

import asyncio
from pathlib import Path

from tests.support.waiting import eventually
from tests.unit.live.scripted_live import ScriptedLive, scripted_live

from fairlead.core.event_log import decode_event, encode_event
from fairlead.live.leases.renewal import Renewal
from fairlead.live.speeds.measurements import measured
from fairlead.model import events as ev
from fairlead.model.speeds.key import SpeedKey, scoped_workload
from fairlead.model.speeds.measured import Selection
from fairlead.model.speeds.table import SpeedTable
from fairlead.policies.max_min import MaxMin
from fairlead.server.access.tokens import Principal
from fairlead.server.api.routes.speeds import measured_pairs

PAYS = SpeedTable(
    {
        SpeedKey("a", 1, "v100"): 10.0,
        SpeedKey("b", 1, "v100"): 20.0,
        SpeedKey("a", 1, "v100", partner="b"): 8.0,
        SpeedKey("b", 1, "v100", partner="a"): 16.0,
    }
)
A, B = (scoped_workload("default", name, "") for name in "ab")
BESIDE_B = SpeedKey(A, 1, "v100", partner=B)
BESIDE_A = SpeedKey(B, 1, "v100", partner=A)


class Member:
    """The library's reports of one job: each speed is that of a window of 1.25 s."""

    def __init__(self, world: ScriptedLive, lease: int) -> None:
        self._world, self.lease, self._ran_s = world, lease, 0.0

    async def report(self, *speeds: float) -> None:
        for speed in speeds:
            ran_s, steps = self._ran_s, int(100 * self._ran_s)
            renewal = Renewal(
                rank=0,
                started=steps,
                steps=steps,
                steps_per_s=speed,
                first_step_s=ran_s if speed else None,
                last_step_s=0.0 if speed else None,
            )
            assert self._world.live.renew(self.lease, renewal) is not None
            self._ran_s += 1.25
        await self._world.live.write([])  # after all earlier inputs


async def packed_pair(world: ScriptedLive) -> tuple[str, str]:
    """Return two jobs that one plan packs onto the only device."""
    before = await world.submit(workload="a")
    await world.lease(before)
    jobs = await world.submit(workload="a"), await world.submit(workload="b")
    lease = await world.lease(before)
    world.engine.end(lease, "finished")
    for job in jobs:
        await world.lease(job)
    return jobs


def believed_pairs(world: ScriptedLive) -> dict[SpeedKey, float]:
    return dict(world.live.scheduler.beliefs.measured_pairs)


def is_packed(world: ScriptedLive) -> bool:
    """Return whether the policy would pack jobs now."""
    shares = MaxMin(packed=True).allocate(world.live.scheduler.snapshot(1.0, 1.0))
    pairs = (shares.members >= 0).sum(axis=1) > 1
    return bool((shares.share[pairs] > 1e-6).any())


def test_a_pair_that_does_not_pay_by_measurement_is_undone_and_remembered(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with scripted_live(
            tmp_path, devices="v100=1", policy="max-min:packed", speeds=PAYS
        ) as world:
            jobs = await packed_pair(world)
            assert is_packed(world)
            one, two = [Member(world, await world.lease(job)) for job in jobs]
            queries = world.live.queries
            shared = queries.shared_devices(one.lease)
            assert shared is not None
            assert (shared.partners, shared.leases) == ([jobs[1]], (two.lease,))
            assert queries.shared_device_counts() == {"v100": 1}
            await one.report(0.0, 9.9, 9.8)  # its partner has not begun
            assert not world.live.leases[one.lease].speeds.current
            await two.report(0.0, 19.0, 8.1, 8.0, 7.9)
            assert believed_pairs(world) == {BESIDE_A: 8.0}
            await one.report(9.7, 5.0, 5.0)  # the window that was open when its partner began
            assert believed_pairs(world) == {BESIDE_A: 8.0}
            await one.report(4.1, 4.0, 3.9)
            # Relative speeds of 4 / 10 and 8 / 20 come to less than taking turns.
            assert believed_pairs(world) == {BESIDE_B: 4.0, BESIDE_A: 8.0}
            assert not is_packed(world)
            scheduler = world.live.scheduler
            assert scheduler.measured_speeds.by_key == {}
            own = {speed.key.accelerator: speed for speed in queries.job_speeds(0)}
            assert (own["v100"].steps_per_s, own["v100"].source) == (10.0, "table")
            owner, other = (Principal("p", "tenant", name) for name in ("default", "other"))
            beside_b, beside_a = sorted(
                await measured_pairs(world.live, owner), key=lambda view: view.workload
            )
            assert (beside_b.workload, beside_b.partner) == ("a", "b")
            assert (beside_b.steps_per_s, beside_b.alone_steps_per_s) == (4.0, 10.0)
            assert (beside_a.steps_per_s, beside_a.alone_steps_per_s) == (8.0, 20.0)
            assert await measured_pairs(world.live, other) == []
            changes = scheduler.changes
            await one.report(4.05, 3.95)
            assert scheduler.changes == changes  # noise is no event
        async with scripted_live(
            tmp_path, devices="v100=1", policy="max-min:packed", speeds=PAYS
        ) as world:
            assert believed_pairs(world) == {BESIDE_B: 4.0, BESIDE_A: 8.0}
            assert not is_packed(world)
            await world.live.speeds.forget(Selection(workload="b"), "root")
            assert is_packed(world)

    asyncio.run(scenario())


def test_a_speed_measured_beside_a_partner_never_counts_for_the_job_alone(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with scripted_live(
            tmp_path, devices="v100=1", policy="max-min:packed", speeds=PAYS
        ) as world:
            jobs = await packed_pair(world)
            one, two = [Member(world, await world.lease(job)) for job in jobs]
            await two.report(0.0, 19.0, 18.0)
            await one.report(0.0, 9.9, 4.1, 4.0, 3.9)
            assert believed_pairs(world) == {BESIDE_B: 4.0}
            world.engine.end(two.lease, "finished")
            await eventually(lambda: two.lease not in world.live.leases)
            # Between its partner's end and its own next renewal, the last reports are of the pair.
            live, opened = world.live, world.live.leases[one.lease]
            assert live.speeds.measurements.events(1.0) == []
            await one.report(3.8, 7.0, 7.0)  # the open window began beside the partner
            assert not opened.speeds.current
            assert measured([opened], live.lease_use, 1.0) == []
            assert live.speeds.measurements.events(1.0) == []
            await one.report(9.0, 9.1, 8.9)
            assert live.scheduler.measured_speeds.steps_per_s == {SpeedKey(A, 1, "v100"): 9.0}
            (report,) = measured([opened], live.lease_use, 1.0)
            assert isinstance(report, ev.Measured)
            assert report.steps_per_s == 8.9

    asyncio.run(scenario())


def test_out_of_memory_beside_a_partner_separates_the_pair_alone(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with scripted_live(
            tmp_path, devices="v100=1", policy="max-min:packed", speeds=PAYS
        ) as world:
            jobs = await packed_pair(world)
            directory = world.live.orders.log_dir(jobs[0])
            directory.mkdir(parents=True, exist_ok=True)
            lease = await world.lease(jobs[0])
            (directory / f"{lease}.0.log").write_text("torch.OutOfMemoryError: CUDA out of memory")
            await world.fail(jobs[0])
            await eventually(lambda: believed_pairs(world))
            assert believed_pairs(world) == {BESIDE_B: 0.0}
            assert world.live.scheduler.measured_speeds.by_key == {}

    asyncio.run(scenario())


def test_measured_pair_is_logged_and_old_lines_are_read() -> None:
    alone = ev.SpeedMeasured(1.0, A, 1, "v100", 2.0)
    pair = ev.SpeedMeasured(1.0, A, 1, "v100", 2.0, B)
    assert "partner" not in encode_event(alone)
    for event in (alone, pair):
        assert decode_event(encode_event(event), dict) == event
