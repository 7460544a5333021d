"""Parking: a process gives up its device, stays, and continues under a later lease."""

import os
import queue
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any

from fairlead import failpoints
from fairlead.job.keeper.channel import JOINS, Channel, open_channel


class Parking:
    """A process's side of parking: asks its keeper, frees the device, waits for a lease."""

    def __init__(self, channel: Channel, on_stop: Callable[[], None]) -> None:
        """Tell the keeper that this process can park; ``on_stop`` is called when it must stop."""
        self._channel, self._on_stop = channel, on_stop
        self._tensors: list[Any] = []
        """tensors on GPUs, while they are about to be moved"""
        self._groups: Any = None
        """membership in PyTorch's process groups"""
        self._leaves_group = self._resizes = False
        self._answers: queue.SimpleQueue[tuple[str, dict[str, str]]] = queue.SimpleQueue()
        threading.Thread(target=self._listen, name="fairlead-keeper", daemon=True).start()
        channel.send("can_park")

    @classmethod
    def of(cls, environment: Mapping[str, str], on_stop: Callable[[], None]) -> "Parking | None":
        """Return the parking of this process; None if its keeper offers none."""
        channel = open_channel(environment)
        return None if channel is None else cls(channel, on_stop)

    def declare_resizing(self) -> None:
        """Tell the keeper that this process could continue in a gang of another size."""
        self._channel.send("can_resize")

    def ask(self, host: Any, *, in_gang: bool, resizes: bool) -> bool:
        """Return whether the keeper lets this process park; ``host`` is its host memory.

        ``host`` is None without PyTorch. The members of a gang get the same answer, once all have
        made their last step. ``resizes``: the program can continue in a gang of another size.
        """
        more_gib = 0.0
        self._leaves_group, self._resizes = False, resizes
        if host is not None:
            tensors = _device_memory().find_tensors()
            if tensors is None:
                return self.refuse("it holds CUDA graphs")
            if in_gang or resizes:
                obstacle = self._regrouping().obstacle()
                if obstacle and in_gang:
                    return self.refuse(obstacle)
                self._leaves_group, self._resizes = not obstacle, resizes and not obstacle
            self._tensors = tensors
            more_gib = _device_memory().host_gib_needed(host)
        self._channel.send("leaving", {"more_gib": str(more_gib)})
        if self._answers.get()[0] != "park":
            self._tensors = []
            return False
        failpoints.point("job.park.allowed")
        return True

    def refuse(self, obstacle: str) -> bool:
        """Tell the keeper why this process, and with it its gang, cannot park; return False."""
        self._channel.send("leaving", {"obstacle": obstacle})
        self._answers.get()
        return False

    def leave_device(self, states: Mapping[str, Any], host: Any, *, unsaved: int | None) -> None:
        """Leave the process group, free the device and tell the keeper, which ends the lease.

        ``host`` holds the copies of the tensors in ``states``. ``unsaved`` are the steps that this
        process is about to commit, None if they are committed.
        """
        if self._leaves_group:
            self._regrouping().leave()
        if host is not None:
            tensors, self._tensors = self._tensors, []
            _device_memory().release(states, tensors, host)
        failpoints.point("job.park.released")
        fields = {} if unsaved is None else {"unsaved": str(unsaved)}
        self._channel.send("parked", {**fields, "resizes": str(int(self._resizes))})

    def wait_for_lease(self) -> Mapping[str, str] | None:
        """Tell the keeper that all steps are committed; return the next lease's variables.

        Returns None if the process must exit.
        """
        failpoints.point("job.park.saved")
        self._channel.send("saved")
        kind, environment = self._answers.get()
        return environment if kind == "resume" else None

    def enter(self) -> None:
        """Join the group of members that have stayed, if this process was started for theirs."""
        if os.environ.pop(JOINS, "") and "torch" in sys.modules:
            self._regrouping().leave()
            self.join(dict(os.environ))

    def join(self, environment: Mapping[str, str]) -> None:
        """Join the process group of the next lease, if there was one under the last."""
        if self._groups is not None:
            self._groups.join(environment)

    def _regrouping(self) -> Any:
        """Return the membership in PyTorch's process groups: only jobs that use it have it."""
        if self._groups is None:
            from fairlead.job.torch.gang import Regrouping  # noqa: PLC0415  # see above

            self._groups = Regrouping()
        return self._groups

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
