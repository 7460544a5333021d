"""Recorded answers of NVML behind the functions of ``pynvml``: an H200 and one cut by MIG."""

# ruff: noqa: N802  # the functions have NVML's names

from types import SimpleNamespace
from typing import Any

NVML_TEMPERATURE_GPU = 0
NVML_MEMORY_ERROR_TYPE_UNCORRECTED = 1
NVML_VOLATILE_ECC = 0
NVML_DEVICE_MIG_ENABLE = 1
NVML_ERROR_NOT_SUPPORTED = 3
NVML_ERROR_NOT_FOUND = 6
NVML_ERROR_TIMEOUT = 10
NVML_ERROR_GPU_IS_LOST = 15
NVML_ERROR_RESET_REQUIRED = 16
XID_EVENT = 8

H200 = {
    "uuid": "GPU-aaaa",
    "name": "NVIDIA H200",
    "memory": (150_754_820_096, 6_442_450_944),
    "load": 87,
    "temperature": 41,
    "ecc": 0,
    "reasons": 0x1,
    "mig": None,
}
CUT = {
    "uuid": "GPU-bbbb",
    "name": "NVIDIA H200",
    "memory": (150_754_820_096, 0),
    "load": None,
    "temperature": 55,
    "ecc": 0,
    "reasons": 0x4 | 0x40,
    "mig": [
        {"uuid": "MIG-1111", "name": "NVIDIA H200 MIG 3g.71gb", "memory": (75_161_927_680, 0)},
        None,
        {"uuid": "MIG-2222", "name": "NVIDIA H200 MIG 1g.18gb", "memory": (17_179_869_184, 0)},
    ],
}


class NVMLError(Exception):
    """An error of NVML."""

    def __init__(self, value: int) -> None:
        super().__init__(f"NVML error {value}")
        self.value = value


class RecordedNvml:
    """The part of ``pynvml`` that is used, answering from recorded cards."""

    NVMLError = NVMLError
    NVML_TEMPERATURE_GPU = NVML_TEMPERATURE_GPU
    NVML_MEMORY_ERROR_TYPE_UNCORRECTED = NVML_MEMORY_ERROR_TYPE_UNCORRECTED
    NVML_VOLATILE_ECC = NVML_VOLATILE_ECC
    NVML_DEVICE_MIG_ENABLE = NVML_DEVICE_MIG_ENABLE
    NVML_ERROR_GPU_IS_LOST = NVML_ERROR_GPU_IS_LOST
    NVML_ERROR_RESET_REQUIRED = NVML_ERROR_RESET_REQUIRED
    nvmlEventTypeXidCriticalError = XID_EVENT  # noqa: N815  # NVML's name

    def __init__(self, *cards: dict[str, Any]) -> None:
        self.cards = [dict(card) for card in cards]
        self.error: dict[str, int] = {}
        """UUID of a card → error of every call"""
        self.events: list[tuple[str, int]] = []
        """UUID of a card and XID"""
        self._registered: set[str] = set()

    def _check(self, handle: Any) -> Any:
        if value := self.error.get(handle["uuid"]):
            raise NVMLError(value)
        return handle

    def _value(self, handle: Any, name: str) -> Any:
        value = self._check(handle).get(name)
        if value is None:
            raise NVMLError(NVML_ERROR_NOT_SUPPORTED)
        return value

    def nvmlInit(self) -> None:
        pass

    def nvmlShutdown(self) -> None:
        pass

    def nvmlDeviceGetCount(self) -> int:
        return len(self.cards)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Any:
        return self._check(self.cards[index])

    def nvmlDeviceGetUUID(self, handle: Any) -> str:
        return str(self._check(handle)["uuid"])

    def nvmlDeviceGetName(self, handle: Any) -> str:
        return str(self._check(handle)["name"])

    def nvmlDeviceGetMemoryInfo(self, handle: Any) -> Any:
        total, used = self._check(handle)["memory"]
        return SimpleNamespace(total=total, used=used)

    def nvmlDeviceGetUtilizationRates(self, handle: Any) -> Any:
        return SimpleNamespace(gpu=self._value(handle, "load"))

    def nvmlDeviceGetTemperature(self, handle: Any, sensor: int) -> int:
        assert sensor == NVML_TEMPERATURE_GPU
        return int(self._value(handle, "temperature"))

    def nvmlDeviceGetTotalEccErrors(self, handle: Any, kind: int, counter: int) -> int:
        assert (kind, counter) == (NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_VOLATILE_ECC)
        return int(self._value(handle, "ecc"))

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: Any) -> int:
        return int(self._value(handle, "reasons"))

    def nvmlDeviceGetMigMode(self, handle: Any) -> list[int]:
        self._value(handle, "mig")
        return [NVML_DEVICE_MIG_ENABLE, NVML_DEVICE_MIG_ENABLE]

    def nvmlDeviceGetMaxMigDeviceCount(self, handle: Any) -> int:
        return len(self._value(handle, "mig"))

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: Any, index: int) -> Any:
        if (mig := self._value(handle, "mig")[index]) is None:
            raise NVMLError(NVML_ERROR_NOT_FOUND)
        return mig

    def nvmlEventSetCreate(self) -> str:
        return "events"

    def nvmlDeviceRegisterEvents(self, handle: Any, types: int, events: str) -> None:
        assert (types, events) == (XID_EVENT, "events")
        self._registered.add(self.nvmlDeviceGetUUID(handle))

    def nvmlEventSetWait_v2(self, events: str, timeout_ms: int) -> Any:
        assert events == "events"
        assert timeout_ms < 100
        if not self.events:
            raise NVMLError(NVML_ERROR_TIMEOUT)
        uuid, xid = self.events.pop(0)
        assert uuid in self._registered
        card = next(card for card in self.cards if card["uuid"] == uuid)
        return SimpleNamespace(device=card, eventData=xid)
