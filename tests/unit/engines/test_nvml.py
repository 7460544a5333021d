"""GPUs by NVML, from recorded answers; tests/gpu/test_inventory.py asks a real driver."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.unit.engines.recorded_nvml import (
    CUT,
    H200,
    NVML_ERROR_GPU_IS_LOST,
    NVML_ERROR_RESET_REQUIRED,
    RecordedNvml,
)

from fairlead.engines.base import DeviceReading, DevicesRead
from fairlead.engines.local.gpus.gpu import Gpu
from fairlead.engines.local.gpus.monitor import GpuMonitor
from fairlead.engines.local.gpus.nvml import NvmlReader
from fairlead.engines.local.plugin import PLUGIN
from fairlead.engines.plugin import Site


def test_whole_gpus_and_mig_devices_are_listed() -> None:
    assert NvmlReader(RecordedNvml(H200, CUT)).gpus() == (
        Gpu("h200", "GPU-aaaa"),
        Gpu("h200-3g.71gb", "MIG-1111"),
        Gpu("h200-1g.18gb", "MIG-2222"),
    )


def test_a_gpu_that_cannot_be_read_at_the_start_is_not_listed() -> None:
    library = RecordedNvml(H200, CUT)
    library.error["GPU-aaaa"] = NVML_ERROR_GPU_IS_LOST
    assert [gpu.uuid for gpu in NvmlReader(library).gpus()] == ["MIG-1111", "MIG-2222"]


def test_readings_of_a_whole_gpu() -> None:
    assert NvmlReader(RecordedNvml(H200)).read("GPU-aaaa", 3) == DeviceReading(
        number=3,
        memory_used_gib=6.0,
        memory_gib=150_754_820_096 / 2**30,
        utilisation=0.87,
        temperature_c=41,
        uncorrectable_ecc=0,
    )


def test_a_mig_device_has_its_own_memory_and_the_rest_of_its_gpu() -> None:
    library = RecordedNvml({**CUT, "ecc": 2})
    assert NvmlReader(library).read("MIG-2222", 0) == DeviceReading(
        number=0,
        memory_used_gib=0.0,
        memory_gib=16.0,
        temperature_c=55,
        uncorrectable_ecc=2,
        throttled=("power cap", "hardware thermal slowdown"),
    )


def test_each_device_of_a_gpu_reads_its_xid_errors_once() -> None:
    library = RecordedNvml(H200, CUT)
    reader = NvmlReader(library)
    library.events += [("GPU-bbbb", 48), ("GPU-bbbb", 63)]
    for uuid, xids in (("MIG-1111", (48, 63)), ("MIG-2222", (48, 63)), ("GPU-aaaa", ())):
        assert reader.read(uuid, 0).xids == xids
        assert reader.read(uuid, 0).xids == ()


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (NVML_ERROR_GPU_IS_LOST, "the GPU has fallen off the bus"),
        (NVML_ERROR_RESET_REQUIRED, "the GPU requires a reset"),
    ],
)
def test_a_gpu_that_the_driver_loses_is_unusable_and_the_others_are_read(
    error: int, reason: str
) -> None:
    library = RecordedNvml(H200, CUT)
    reader = NvmlReader(library)
    library.events.append(("GPU-aaaa", 79))  # whose GPU can no longer be found
    library.events.append(("GPU-bbbb", 13))
    library.error["GPU-aaaa"] = error
    assert reader.read("MIG-1111", 1).xids == (13,)
    assert reader.read("GPU-aaaa", 0) == DeviceReading(number=0, unusable=reason)


def test_the_monitor_reports_readings_by_node_until_it_is_stopped() -> None:
    library = RecordedNvml(H200, CUT)
    places = {"GPU-aaaa": ("host", 0), "MIG-1111": ("host", 2), "MIG-2222": ("host+1", 0)}

    async def scene() -> None:
        reports: asyncio.Queue[Any] = asyncio.Queue()
        monitor = GpuMonitor(NvmlReader(library), places, every_s=0.005)
        monitor.start(reports.put_nowait)
        async with asyncio.timeout(90):
            read = [await reports.get() for _ in range(4)]  # two rounds of readings
            monitor.stop()
        assert all(isinstance(one, DevicesRead) for one in read)
        numbers = [(one.node, [reading.number for reading in one.readings]) for one in read]
        assert numbers == 2 * [("host", [0, 2]), ("host+1", [0])]

    asyncio.run(scene())


def test_the_local_engine_lists_and_reads_the_gpus_of_its_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = NvmlReader(RecordedNvml(H200, CUT))
    monkeypatch.setattr("fairlead.engines.local.plugin.find_gpus", lambda: (reader.gpus(), reader))

    async def first_readings() -> DevicesRead:
        engine = PLUGIN.open(Site(data=tmp_path, node_name="host"), {}).engine
        (node,) = (await engine.inventory()).nodes
        assert node.devices == ("h200", "h200-3g.71gb", "h200-1g.18gb")
        await engine.adopt([])
        try:
            async with asyncio.timeout(90):
                async for report in engine.reports():
                    if isinstance(report, DevicesRead):
                        return report
        finally:
            await engine.close()
        raise AssertionError("the reports ended")

    report = asyncio.run(first_readings())
    assert report.node == "host"
    assert [reading.temperature_c for reading in report.readings] == [41, 55, 55]
