"""Parking: a process gives up its device, stays, and continues under a later lease."""

import queue
import threading
from collections.abc import Callable, Mapping
from typing import Any

from fairlead import failpoints
from fairlead.job.keeper.channel import Channel, open_channel


class Parking:
    """A process's side of parking: asks its keeper, frees the device, waits for a lease."""

    def __init__(self, channel: Channel, on_stop: Callable[[], None]) -> None:
        """Tell the keeper that this process can park; ``on_stop`` is called when it must stop."""
        self._channel, self._on_stop = channel, on_stop
        self._tensors: list[Any] = []
        """tensors on GPUs, while they are about to be moved"""
        self._answers: queue.SimpleQueue[tuple[str, dict[str, str]]] = queue.SimpleQueue()
        threading.Thread(target=self._listen, name="fairlead-keeper", daemon=True).start()
        channel.send("can_park")

    @classmethod
    def of(cls, environment: Mapping[str, str], on_stop: Callable[[], None]) -> "Parking | None":
        """Return the parking of this process; None if its keeper offers none."""
        channel = open_channel(environment)
        return None if channel is None else cls(channel, on_stop)

    def ask(self, host: Any) -> bool:
        """Return whether the keeper lets this process park; ``host`` is its host memory.

        ``host`` is None without PyTorch.
        """
        more_gib = 0.0
        if host is not None:
            tensors = _device_memory().find_tensors()
            if tensors is None:
                return False
            self._tensors = tensors
            more_gib = _device_memory().host_gib_needed(host)
        self._channel.send("leaving", {"more_gib": str(more_gib)})
        if self._answers.get()[0] != "park":
            self._tensors = []
            return False
        failpoints.point("job.park.allowed")
        return True

    def leave_device(self, states: Mapping[str, Any], host: Any, *, unsaved: int | None) -> None:
        """Free the device and tell the keeper, which ends the lease.

        ``host`` holds the copies of the tensors in ``states``. ``unsaved`` are the steps that this
        process is about to commit, None if they are committed.
        """
        if host is not None:
            tensors, self._tensors = self._tensors, []
            _device_memory().release(states, tensors, host)
        failpoints.point("job.park.released")
        self._channel.send("parked", {} if unsaved is None else {"unsaved": str(unsaved)})

    def wait_for_lease(self) -> Mapping[str, str] | None:
        """Tell the keeper that all steps are committed; return the next lease's variables.

        Returns None if the process must exit.
        """
        failpoints.point("job.park.saved")
        self._channel.send("saved")
        kind, environment = self._answers.get()
        return environment if kind == "resume" else None

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
