"""Faulty devices are drained with the reason shown, until an operator returns their node."""

import asyncio
from pathlib import Path

import pytest
from tests.support.waiting import eventually
from tests.unit.live.scripted_live import ScriptedLive, scripted_live

from fairlead.engines.base import DeviceReading, DevicesRead, DevicesTakenReport
from fairlead.live.nodes.device_health import find_fault
from fairlead.server.api.metrics import render
from fairlead.server.api.schemas import NodeView
from fairlead.server.api.views import node_views
from fairlead.store import Put


@pytest.mark.parametrize(
    ("reading", "reason"),
    [
        (DeviceReading(number=0), None),
        (DeviceReading(number=0, temperature_c=95, throttled=("power brake",)), None),
        (DeviceReading(number=0, xids=(13, 31, 43, 45)), None),
        (DeviceReading(number=0, uncorrectable_ecc=0), None),
        (DeviceReading(number=0, uncorrectable_ecc=1), "1 uncorrectable ECC error"),
        (DeviceReading(number=0, uncorrectable_ecc=3), "3 uncorrectable ECC errors"),
        (DeviceReading(number=0, xids=(31, 79)), "XID 79: GPU has fallen off the bus"),
        (DeviceReading(number=0, unusable="lost", xids=(79,)), "lost"),
    ],
)
def test_fault_of_a_reading(reading: DeviceReading, reason: str | None) -> None:
    assert find_fault(reading) == reason


def test_errors_that_an_operator_has_accepted_are_no_fault() -> None:
    assert find_fault(DeviceReading(number=0, uncorrectable_ecc=3), accepted_ecc=3) is None
    assert find_fault(DeviceReading(number=0, uncorrectable_ecc=4), accepted_ecc=3) is not None


async def _read(site: ScriptedLive, *readings: DeviceReading) -> NodeView:
    """Report readings of the k80 node; return its view once they are handled."""
    site.live._report(DevicesRead("k80-0", readings))
    await site.live.write([])
    return _node(site)


def _node(site: ScriptedLive) -> NodeView:
    return next(view for view in node_views(site.live) if view.id == "k80-0")


def _faults(view: NodeView) -> dict[int, str]:
    return {one.number: one.fault for one in view.health if one.fault is not None}


def test_a_faulty_device_is_drained_over_restarts_until_its_node_is_returned(
    tmp_path: Path,
) -> None:
    reason = "2 uncorrectable ECC errors"
    healthy = DeviceReading(number=0, memory_gib=12.0)
    bad = DeviceReading(number=1, uncorrectable_ecc=2)

    async def break_device() -> str:
        async with scripted_live(tmp_path) as site:
            jobs = [await site.submit(accelerators=("k80",)) for _ in range(2)]
            leases = [await site.lease(job) for job in jobs]
            view = await _read(site, healthy, DeviceReading(number=1, uncorrectable_ecc=0))
            assert _faults(view) == {}
            assert [one.memory_gib for one in view.health] == [12.0, None]
            view = await _read(site, healthy, bad)
            assert (_faults(view), view.taken) == ({1: reason}, 0)
            await eventually(lambda: len(site.engine.open) <= 1)
            (stays,) = site.engine.open
            assert stays in leases
            assert site.live.scheduler.nodes.taken_on("k80-0") == (1,)
            labels = b'{accelerator="k80",device="1",node="k80-0"}'
            assert b"fairlead_device_faulty" + labels + b" 1.0" in render(site.live)
            (entry,) = [
                one for one in site.live.store.audit_trail(limit=50) if one["action"] == "drain"
            ]
            assert (entry["subject"], entry["detail"]) == ("k80-0 device 1", reason)
            (waiting,) = set(jobs) - set(site.engine.open.values())
            return waiting

    async def return_device(waiting: str) -> None:
        async with scripted_live(tmp_path) as site:
            assert _faults(_node(site)) == {1: reason}
            site.live._report(DevicesTakenReport("k80-0", (), gone=True))  # as engines do
            assert _faults(await _read(site, healthy, bad)) == {1: reason}
            assert site.live.scheduler.nodes.taken_on("k80-0") == (1,)
            await site.live.nodes.return_node("k80-0", "operator")
            assert await site.lease(waiting) >= 0
            assert _faults(await _read(site, healthy, bad)) == {}  # these errors are accepted

    async def break_again() -> None:
        async with scripted_live(tmp_path) as site:
            assert _faults(await _read(site, healthy, bad)) == {}
            reset = DeviceReading(number=1, uncorrectable_ecc=0)
            assert _faults(await _read(site, healthy, reset)) == {}
            one = DeviceReading(number=1, uncorrectable_ecc=1)
            assert _faults(await _read(site, healthy, one)) == {1: "1 uncorrectable ECC error"}

    waiting = asyncio.run(break_device())
    asyncio.run(return_device(waiting))
    asyncio.run(break_again())


def test_a_damaged_record_keeps_its_device_drained(tmp_path: Path) -> None:
    async def scene() -> None:
        async with scripted_live(tmp_path) as site:
            await site.live.write(
                [Put("device-fault", "k80-0/1", "{"), Put("device-ecc", "k80-0/0", "many")]
            )
        async with scripted_live(tmp_path) as site:
            assert list(_faults(_node(site))) == [1]
            one = DeviceReading(number=0, uncorrectable_ecc=1)
            assert list(_faults(await _read(site, one))) == [0, 1]

    asyncio.run(scene())


def test_a_returned_device_that_is_still_broken_is_drained_again(tmp_path: Path) -> None:
    lost = DeviceReading(number=0, unusable="the GPU has fallen off the bus")

    async def scene() -> None:
        async with scripted_live(tmp_path) as site:
            site.live._report(DevicesTakenReport("k80-0", (1,), gone=True))
            for _ in range(2):
                view = await _read(site, lost)
                assert (_faults(view), view.taken) == ({0: lost.unusable}, 1)
                assert site.live.scheduler.nodes.taken_on("k80-0") == (0, 1)
                await site.live.nodes.return_node("k80-0", "operator")
                assert _faults(_node(site)) == {}
                # A missing device does not come back by an operator's command.
                assert site.live.scheduler.nodes.taken_on("k80-0") == (1,)

    asyncio.run(scene())
