"""Readings of the devices' driver tell how much of them a lease uses while it runs alone."""

import asyncio
from pathlib import Path

from tests.unit.live.scripted_live import ScriptedLive, scripted_live
from tests.unit.live.speeds.test_packed_speeds import PAYS, Member, packed_pair

from fairlead.engines.base import DeviceReading, DevicesRead
from fairlead.live.speeds.measurements import measured
from fairlead.model import events as ev


def read(world: ScriptedLive, utilisation: float | None, memory_gib: float | None) -> None:
    """Report a reading of the only device."""
    reading = DeviceReading(number=0, utilisation=utilisation, memory_used_gib=memory_gib)
    world.live._report(DevicesRead("v100-0", (reading,)))


def use_of(world: ScriptedLive, lease: int) -> tuple[float | None, float | None]:
    """Return utilisation and memory of a lease, as the core will have them."""
    live = world.live
    (report,) = measured([live.leases[lease]], live.lease_use, live.clock.now())
    assert isinstance(report, ev.Measured)
    return report.utilization, report.memory_gib


def test_readings_count_from_the_first_step_on(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with scripted_live(tmp_path, devices="v100=1") as world:
            member = Member(world, await world.lease(await world.submit()))
            read(world, 1.0, 20.0)  # it still starts
            await member.report(0.0, 5.0)
            assert use_of(world, member.lease) == (None, None)
            read(world, None, None)  # such as a MIG device
            assert use_of(world, member.lease) == (None, None)
            read(world, 0.25, 8.0)
            read(world, 0.5, 6.0)
            assert use_of(world, member.lease) == (0.375, 8.0)
            world.live.leases[member.lease].metrics["utilization"] = 0.9
            assert use_of(world, member.lease) == (0.9, 8.0)
            world.engine.end(member.lease, "finished")
            await world.recorded(member.lease)

    asyncio.run(scenario())


def test_readings_of_shared_devices_tell_nothing_about_one_job(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with scripted_live(
            tmp_path, devices="v100=1", policy="max-min:packed", speeds=PAYS
        ) as world:
            jobs = await packed_pair(world)
            one, two = [Member(world, await world.lease(job)) for job in jobs]
            await two.report(0.0, 19.0, 18.0)
            await one.report(0.0, 9.9, 4.1, 4.0, 3.9)
            read(world, 1.0, 30.0)
            assert use_of(world, one.lease) == (None, None)
            world.engine.end(two.lease, "finished")
            await world.recorded(two.lease)
            await one.report(3.8, 7.0, 7.1, 9.0)
            read(world, 0.5, 10.0)
            assert use_of(world, one.lease) == (0.5, 10.0)

    asyncio.run(scenario())
