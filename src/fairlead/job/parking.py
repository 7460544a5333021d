"""Parking: a process gives up its device, stays, and continues under a later lease."""

import queue
import socket
import threading
from collections.abc import Callable, Mapping
from typing import Any

from fairlead import failpoints
from fairlead.job.keeper_channel import VARIABLE, Channel


class Parking:
    """A process's side of parking: asks its keeper, frees the device, waits for a lease."""

    def __init__(self, channel: Channel, on_stop: Callable[[], None]) -> None:
        """Tell the keeper that this process can park; ``on_stop`` is called when it must stop."""
        self._channel, self._on_stop = channel, on_stop
        self._answers: queue.SimpleQueue[tuple[str, dict[str, str]]] = queue.SimpleQueue()
        threading.Thread(target=self._listen, name="fairlead-keeper", daemon=True).start()
        channel.send("can_park")

    @classmethod
    def of(cls, environment: Mapping[str, str], on_stop: Callable[[], None]) -> "Parking | None":
        """Return the parking of this process; None if its keeper offers none."""
        descriptor = environment.get(VARIABLE, "")
        if not descriptor.isdigit():
            return None
        try:
            end = socket.socket(fileno=int(descriptor))
        except OSError:  # a program between keeper and process has closed it
            return None
        end.set_inheritable(False)
        return cls(Channel(end), on_stop)

    def wait_for_lease(
        self, states: Callable[[], Mapping[str, Any]], host: Any
    ) -> Mapping[str, str] | None:
        """Free the device and wait; return the variables of the next lease.

        Returns None if the process must exit: its checkpoint must be committed. ``states`` returns
        the states of all registered objects, ``host`` is their host memory, None without PyTorch.
        """
        if host is not None and not _device_memory().can_release():
            return None
        self._channel.send("leaving")
        if self._answers.get()[0] != "park":
            return None
        failpoints.point("job.park.allowed")
        if host is not None:
            _device_memory().release(states(), host)
        failpoints.point("job.park.released")
        self._channel.send("parked")
        kind, environment = self._answers.get()
        if kind != "resume":
            return None
        if host is not None:
            host.restore()
        failpoints.point("job.park.resumed")
        return environment

    def _listen(self) -> None:
        while not self._channel.closed:
            for kind, environment in self._channel.receive():
                if kind == "stop":
                    self._on_stop()
                else:
                    self._answers.put((kind, environment))
        self._answers.put(("exit", {}))


def _device_memory() -> Any:
    """Return the module that moves PyTorch's tensors: only jobs that use it have it."""
    from fairlead.job.torch import device_memory  # noqa: PLC0415

    return device_memory
