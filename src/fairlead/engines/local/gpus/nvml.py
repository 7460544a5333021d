"""GPUs by NVML, NVIDIA's management library: their list and their condition."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import structlog

from fairlead.engines.base import DeviceReading
from fairlead.engines.local.gpus.gpu import Gpu, accelerator_name

log = structlog.get_logger("fairlead.engines.local")

_GIB = float(1 << 30)
_MAX_XIDS = 100
"""XID errors collected at once; a GPU that reports more is broken anyway"""
_EVENT_WAIT_MS = 1
_THROTTLING = {
    0x04: "power cap",
    0x08: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}
"""bit of NVML's clock event reasons → its name; the other bits are no loss of speed"""
_UNUSABLE = {
    "NVML_ERROR_GPU_IS_LOST": "the GPU has fallen off the bus",
    "NVML_ERROR_RESET_REQUIRED": "the GPU requires a reset",
}
"""NVML error → reason for which a GPU cannot be used"""


class _UnusableGpuError(Exception):
    """NVML cannot read a GPU because of its condition."""


@dataclass(frozen=True, slots=True)
class _Device:
    gpu: Gpu
    handle: Any
    card: Any
    """handle of the GPU that a MIG device belongs to; equal to ``handle`` for a whole GPU"""
    card_uuid: str


class NvmlReader:
    """Reads GPUs by a loaded ``pynvml`` module, in one thread at a time.

    GPUs are listed once: a GPU that falls off the bus later keeps its place.
    """

    def __init__(self, library: Any) -> None:
        """Start the library; raise its NVMLError without a driver."""
        self._nvml = library
        library.nvmlInit()
        self._devices = {device.gpu.uuid: device for device in self._find_devices()}
        self._events = self._subscribe()
        self._xids: dict[str, list[int]] = {uuid: [] for uuid in self._devices}
        """device → XID errors of its GPU since its last reading"""

    def gpus(self) -> tuple[Gpu, ...]:
        """Return the whole GPUs and MIG devices that processes can use."""
        return tuple(device.gpu for device in self._devices.values())

    def read(self, uuid: str, number: int) -> DeviceReading:
        """Return the condition of a device, with XID errors since its last reading.

        A MIG device has its own memory; NVML reports the rest for its GPU only.
        """
        self._collect_xids()
        xids, self._xids[uuid] = tuple(self._xids[uuid]), []
        try:
            return self._read(self._devices[uuid], number, xids)
        except _UnusableGpuError as error:
            return DeviceReading(number=number, xids=xids, unusable=str(error))

    def close(self) -> None:
        """Release the library."""
        self._nvml.nvmlShutdown()

    def _read(self, device: _Device, number: int, xids: tuple[int, ...]) -> DeviceReading:
        nvml = self._nvml
        memory = self._ask(nvml.nvmlDeviceGetMemoryInfo, device.handle)
        rates = self._ask(nvml.nvmlDeviceGetUtilizationRates, device.handle)
        reasons = self._ask(nvml.nvmlDeviceGetCurrentClocksThrottleReasons, device.card) or 0
        return DeviceReading(
            number=number,
            memory_used_gib=None if memory is None else memory.used / _GIB,
            memory_gib=None if memory is None else memory.total / _GIB,
            utilisation=None if rates is None else rates.gpu / 100.0,
            temperature_c=self._ask(
                nvml.nvmlDeviceGetTemperature, device.card, nvml.NVML_TEMPERATURE_GPU
            ),
            uncorrectable_ecc=self._ask(
                nvml.nvmlDeviceGetTotalEccErrors,
                device.card,
                nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
                nvml.NVML_VOLATILE_ECC,
            ),
            throttled=tuple(name for bit, name in _THROTTLING.items() if reasons & bit),
            xids=xids,
        )

    def _ask(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Return NVML's answer, None where it has none; raise if the GPU is unusable."""
        try:
            return function(*arguments)
        except self._nvml.NVMLError as error:
            for name, reason in _UNUSABLE.items():
                if error.value == getattr(self._nvml, name):
                    raise _UnusableGpuError(reason) from None
            return None

    # -- devices --------------------------------------------------------------------------------

    def _find_devices(self) -> Iterator[_Device]:
        for index in range(self._nvml.nvmlDeviceGetCount()):
            try:
                yield from self._devices_of(self._nvml.nvmlDeviceGetHandleByIndex(index))
            except (self._nvml.NVMLError, _UnusableGpuError) as error:
                log.error("gpu.unreadable", index=index, error=str(error))

    def _devices_of(self, card: Any) -> list[_Device]:
        """Return a GPU, or its MIG devices: processes cannot use a whole GPU in MIG mode."""
        nvml = self._nvml
        uuid, product = nvml.nvmlDeviceGetUUID(card), nvml.nvmlDeviceGetName(card)
        modes = self._ask(nvml.nvmlDeviceGetMigMode, card)
        if modes is None or modes[0] != nvml.NVML_DEVICE_MIG_ENABLE:
            return [_Device(Gpu(accelerator_name(product), uuid), card, card, uuid)]
        devices = []
        for index in range(nvml.nvmlDeviceGetMaxMigDeviceCount(card)):
            mig = self._ask(nvml.nvmlDeviceGetMigDeviceHandleByIndex, card, index)
            if mig is not None:
                profile = nvml.nvmlDeviceGetName(mig).rpartition("MIG ")[2]
                gpu = Gpu(accelerator_name(product, profile), nvml.nvmlDeviceGetUUID(mig))
                devices.append(_Device(gpu, mig, card, uuid))
        return devices

    # -- XID errors -----------------------------------------------------------------------------

    def _subscribe(self) -> Any:
        """Return the set of XID events of all GPUs, None where NVML has no events."""
        nvml = self._nvml
        try:
            events = nvml.nvmlEventSetCreate()
        except nvml.NVMLError:
            return None
        for card in {one.card_uuid: one.card for one in self._devices.values()}.values():
            try:
                nvml.nvmlDeviceRegisterEvents(card, nvml.nvmlEventTypeXidCriticalError, events)
            except nvml.NVMLError as error:
                log.debug("gpu.without_events", error=str(error))
        return events

    def _collect_xids(self) -> None:
        """Keep new XID errors for the next reading of every device of their GPU."""
        nvml = self._nvml
        for _ in range(0 if self._events is None else _MAX_XIDS):
            try:
                event = nvml.nvmlEventSetWait_v2(self._events, _EVENT_WAIT_MS)
            except nvml.NVMLError:
                return  # no more events
            try:
                card_uuid = nvml.nvmlDeviceGetUUID(event.device)
            except nvml.NVMLError:
                continue  # of a lost GPU, which its reading shows
            for uuid, device in self._devices.items():
                if device.card_uuid == card_uuid:
                    self._xids[uuid].append(int(event.eventData))


def open_nvml() -> NvmlReader | None:
    """Return a reader of this machine's GPUs; None without ``fairlead[nvml]`` or a driver."""
    try:
        import pynvml  # noqa: PLC0415  # an extra
    except ImportError:
        return None
    try:
        return NvmlReader(pynvml)
    except pynvml.NVMLError as error:
        log.debug("nvml.unavailable", error=str(error))
        return None
