"""Periodic readings of this machine's GPUs."""

import asyncio
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

from fairlead.engines.base import DeviceReading, DevicesRead

_EVERY_S = 5.0
_CLOSE_S = 10.0
"""seconds for which the end of a reading is waited for"""


class DeviceReader(Protocol):
    """Reads the condition of devices by their UUIDs."""

    def read(self, uuid: str, number: int) -> DeviceReading:
        """Return the condition of a device, with XID errors since its last reading."""
        ...

    def close(self) -> None:
        """Release the driver."""
        ...


class GpuMonitor:
    """Reads all GPUs every few seconds.

    A call of the driver can hang on a broken GPU, so the readings have a thread of their own that
    neither the event loop nor the server's end waits for.
    """

    def __init__(
        self,
        reader: DeviceReader,
        devices: Mapping[str, tuple[str, int]],
        *,
        every_s: float = _EVERY_S,
    ) -> None:
        """Read these devices: UUID → node and number on it."""
        self._reader, self._devices, self._every_s = reader, devices, every_s
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, report: Callable[[DevicesRead], None]) -> None:
        """Begin to read; ``report`` is called on the running event loop."""
        loop = asyncio.get_running_loop()
        self._thread = threading.Thread(
            target=self._run, args=(loop, report), name="gpu-monitor", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Stop reading, without waiting for the reading under way."""
        self._stopped.set()

    def close(self) -> None:
        """Stop reading and release the driver: a GPU with a reader cannot be divided."""
        self.stop()
        if self._thread is not None:
            self._thread.join(_CLOSE_S)
        self._reader.close()

    def _run(self, loop: asyncio.AbstractEventLoop, report: Callable[[DevicesRead], None]) -> None:
        while not self._stopped.is_set():
            for read in self._read_all():
                try:
                    loop.call_soon_threadsafe(report, read)
                except RuntimeError:  # the loop has been closed
                    return
            self._stopped.wait(self._every_s)

    def _read_all(self) -> Iterator[DevicesRead]:
        readings: dict[str, list[DeviceReading]] = {}
        for uuid, (node, number) in self._devices.items():
            readings.setdefault(node, []).append(self._reader.read(uuid, number))
        for node, listed in readings.items():
            yield DevicesRead(node, tuple(listed))
