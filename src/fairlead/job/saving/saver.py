"""The memory with which a run saves its state: taken behind training where it is large.

A preempted process must leave its device at once, and its successor waits for the checkpoint. To
take host memory takes longer than to copy the state into it. So the memory of the next save is
taken ahead: memory for the copy of the state and of all else on the device, and a spare file if
checkpoints are in memory.
"""

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from fairlead import block_file
from fairlead.block_file import Payload
from fairlead.job import checkpoint
from fairlead.job.saving.ahead import Ahead
from fairlead.job.saving.memory_file import MemoryFile, is_in_memory
from fairlead.job.saving.writer import BackgroundWriter
from fairlead.job.state_format import encode_chunks

LIMIT_VARIABLE = "FAIRLEAD_OFFLOAD_GIB"
"""environment variable with the host memory that the process may use; without it none is taken"""
_FIRST_STEPS = 2
"""steps of a lease after which memory is taken: by then an optimizer has its state"""
_MARGIN = 1 << 20
"""bytes by which the next state may be larger"""
_PAGE = os.sysconf("SC_PAGE_SIZE")
_AVAILABLE_PART = 0.5
"""part of the machine's free memory that is taken at most"""


class Saver:
    """Encodes states, and holds the memory and the file for the next one."""

    def __init__(self, directory: str, environment: Mapping[str, str]) -> None:
        """Save to a checkpoint directory."""
        self._directory = directory
        self._limit = float(environment.get(LIMIT_VARIABLE, "0")) * 2**30
        self.writer = BackgroundWriter()
        self._host: Any = None
        self._ahead = Ahead()
        self._steps = 0
        """steps since the lease began, or the last save"""
        self._nbytes = saved_bytes(directory) if self._limit else 0
        """size of the last checkpoint; 0: unknown"""
        self._is_due = True
        """no memory was taken since then"""
        self._spare: MemoryFile | None = None

    def host_memory(self) -> Any:
        """Return the host memory for tensors; None without PyTorch."""
        if self._host is None and "torch" in sys.modules:
            from fairlead.job.torch import HostState  # noqa: PLC0415  # only jobs that use it have it

            self._host = HostState()
        return self._host

    def encode(self, states: Mapping[str, Any]) -> Sequence[Payload]:
        """Return states as bytes: one chunk, or several if they hold tensors."""
        self.stop()
        chunks = encode_chunks(states, self.host_memory())
        self._nbytes = block_file.size_of(chunks)
        has_tensors = any(isinstance(chunk, memoryview) for chunk in chunks)
        return chunks if has_tensors else [b"".join(chunks)]

    def take_spare(self) -> MemoryFile | None:
        """Return the spare file for the state that was encoded last; None without."""
        spare, self._spare = self._spare, None
        return spare

    def stop(self) -> None:
        """Take no memory until further steps are made: a save uses the memory taken so far."""
        self._ahead.stop()
        self._steps, self._is_due = 0, True

    def step_done(self, states: Callable[[], Mapping[str, Any]]) -> None:
        """Begin to take memory for the next save if it is time."""
        self._steps += 1
        if self._steps < _FIRST_STEPS or not self._limit:
            return
        if not self._is_due or self.writer.is_busy:
            return
        self._is_due = False
        if not self._nbytes and "torch" in sys.modules:
            from fairlead.job.torch import device_memory  # noqa: PLC0415  # as above

            self._nbytes = device_memory.bytes_of(states())
        if self._nbytes <= block_file.BLOCK:
            return
        nbytes = self._nbytes + _MARGIN
        host, spare = self.host_memory(), self._spare_bytes(nbytes)
        others = 0 if host is None else self._other_bytes()
        for other_nbytes in dict.fromkeys((others, 0)):
            lacking = 0 if host is None else host.lacking(nbytes, other_nbytes)
            if _has_room(lacking + spare, self._limit):
                self._ahead.begin(self._take(host, nbytes, other_nbytes, spare))
                return

    def _other_bytes(self) -> int:
        """Return the bytes on the device that belong to no state, such as gradients."""
        cuda = sys.modules["torch"].cuda
        allocated = int(cuda.memory_allocated()) if cuda.is_initialized() else 0
        return max(allocated - self._nbytes, 0)

    def _spare_bytes(self, nbytes: int) -> int:
        """Return the bytes of the spare file to make; 0: none."""
        return nbytes if self._spare is None and is_in_memory(self._directory) else 0

    def _take(self, host: Any, nbytes: int, other_nbytes: int, spare_bytes: int) -> Iterator[None]:
        """Take memory piece by piece."""
        block_file.drop_read_memory()
        if host is not None:
            pinned = sys.modules["torch"].cuda.is_initialized()
            yield from host.take_ahead(nbytes, other_nbytes, pinned=pinned)
        if spare_bytes:
            self._spare = MemoryFile(self._directory, spare_bytes)
            try:
                yield from self._spare.populate()
            except OSError:  # the file system is full: the save will show a problem
                self._spare.close()
                self._spare = None
                raise


def saved_bytes(directory: str) -> int:
    """Return the size of a directory's committed checkpoint: the next one will be as large."""
    with suppress(OSError):
        committed = checkpoint.latest(directory)
        if committed is not None:
            return os.stat(os.path.join(directory, committed.files[0])).st_size
    return 0


def _has_room(needed: int, limit: float) -> bool:
    """Return whether this process may take more memory, and the machine has it."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            used = int(file.read().split()[1]) * _PAGE
        with open("/proc/meminfo", encoding="ascii") as file:
            available = next(int(line.split()[1]) for line in file if "MemAvailable" in line)
    except (OSError, ValueError, IndexError, StopIteration):
        return False
    return used + needed <= limit and needed <= _AVAILABLE_PART * available * 1024
