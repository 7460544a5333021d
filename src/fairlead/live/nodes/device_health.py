"""Condition of devices: their last readings, and the faults for which they are drained."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import structlog

from fairlead.engines.base import DeviceReading, DevicesRead
from fairlead.store import Change, Put, Remove, Store

log = structlog.get_logger("fairlead.live")

FATAL_XIDS = {
    46: "GPU stopped processing",
    48: "double-bit ECC error",
    54: "auxiliary power is not connected",
    62: "internal micro-controller halt",
    64: "ECC page retirement or row remapping failed",
    74: "NVLink error",
    79: "GPU has fallen off the bus",
    95: "uncontained ECC error",
    110: "security fault",
    119: "GSP RPC timeout",
    120: "GSP error",
    136: "link training failed",
    140: "unrecovered ECC error",
    143: "GPU initialisation error",
}
"""XID errors after which NVIDIA advises to reset or replace the GPU; others are errors of jobs"""

_FAULT = "device-fault"
_ACCEPTED = "device-ecc"
"""documents: faults, and counts of ECC errors that an operator has accepted"""

Device = tuple[str, int]
"""node, number on the node"""


@dataclass(frozen=True, slots=True)
class DeviceFault:
    """The reason for which a device was drained, and the time."""

    reason: str
    at: float


def find_fault(reading: DeviceReading, accepted_ecc: int = 0) -> str | None:
    """Return the reason to drain a device, None if it may be used.

    ``accepted_ecc``: uncorrectable errors with which an operator has returned the device.
    """
    if reading.unusable:
        return reading.unusable
    for xid in reading.xids:
        if xid in FATAL_XIDS:
            return f"XID {xid}: {FATAL_XIDS[xid]}"
    errors = reading.uncorrectable_ecc or 0
    if errors > accepted_ecc:
        return f"{errors} uncorrectable ECC error{'s' if errors > 1 else ''}"
    return None


class DeviceHealth:
    """Keeps readings and faults; a fault stays until an operator returns the device's node."""

    def __init__(self) -> None:
        self.readings: dict[Device, DeviceReading] = {}
        self.faults: dict[Device, DeviceFault] = {}
        self._accepted_ecc: dict[Device, int] = {}

    def restore(self, store: Store) -> None:
        """Read the faults of earlier servers; a damaged record counts as a fault."""
        for key, body in store.documents(_FAULT).items():
            self.faults[_device(key)] = _read_fault(body)
        for key, body in store.documents(_ACCEPTED).items():
            self._accepted_ecc[_device(key)] = int(body) if body.isdecimal() else 0

    def faulty_on(self, node: str) -> set[int]:
        """Return the numbers of a node's faulty devices."""
        return {number for name, number in self.faults if name == node}

    def record(self, report: DevicesRead, at: float) -> Mapping[int, DeviceFault]:
        """Keep new readings; return the devices that they show as faulty for the first time."""
        new: dict[int, DeviceFault] = {}
        for reading in report.readings:
            device = report.node, reading.number
            self.readings[device] = reading
            if reading.uncorrectable_ecc is not None and device in self._accepted_ecc:
                # A reset sets the count to 0, after which every error is new.
                accepted = min(self._accepted_ecc[device], reading.uncorrectable_ecc)
                self._accepted_ecc[device] = accepted
            reason = find_fault(reading, self._accepted_ecc.get(device, 0))
            if reason is not None and device not in self.faults:
                log.error("device.faulty", node=report.node, device=reading.number, reason=reason)
                self.faults[device] = new[reading.number] = DeviceFault(reason, at)
        return new

    def changes(self, node: str, faults: Mapping[int, DeviceFault]) -> Sequence[Change]:
        """Return the documents of new faults."""
        return [
            Put(_FAULT, _key((node, number)), json.dumps({"reason": one.reason, "at": one.at}))
            for number, one in faults.items()
        ]

    def accept(self, node: str) -> Sequence[Change]:
        """Use a node's faulty devices again, until they show another fault."""
        changes: list[Change] = []
        for device in [(node, number) for number in sorted(self.faulty_on(node))]:
            del self.faults[device]
            changes.append(Remove(_FAULT, _key(device)))
            reading = self.readings.get(device)
            if reading is not None and reading.uncorrectable_ecc:
                self._accepted_ecc[device] = reading.uncorrectable_ecc
                changes.append(Put(_ACCEPTED, _key(device), str(reading.uncorrectable_ecc)))
        return changes


def _read_fault(body: str) -> DeviceFault:
    try:
        stored = json.loads(body)
        return DeviceFault(str(stored["reason"]), float(stored["at"]))
    except (ValueError, TypeError, KeyError):
        return DeviceFault("unknown: the record of the fault is damaged", 0.0)


def _key(device: Device) -> str:
    return f"{device[0]}/{device[1]}"


def _device(key: str) -> Device:
    node, _, number = key.rpartition("/")
    return node, int(number)
