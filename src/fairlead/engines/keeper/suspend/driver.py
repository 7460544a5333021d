"""Calls of the CUDA driver's checkpoint API, in a process of their own: a call can hang.

``python -m fairlead.engines.keeper.suspend.driver suspend LOCK_MS ROOM_GIB UUID PID…`` moves the
device memory of those of the processes that use CUDA to the host, and ``… resume PID…`` moves it
back. The answer is one JSON object on the standard output: ``pids`` (the CUDA processes) and
``seconds``, or ``problem``.
"""

import ctypes
import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from fairlead.engines.keeper.stop_handler import has_stop_handler

LIBRARY, _NVML = "libcuda.so.1", "libnvidia-ml.so.1"
_PREFIX = "cuCheckpointProcess"
_RUNNING, _LOCKED, _CHECKPOINTED = 0, 1, 2  # CU_PROCESS_STATE_…
_SIGNAL_ON_PARENT_DEATH = 1  # PR_SET_PDEATHSIG
_DEVICES = "/dev/nvidia"
_GIB = float(1 << 30)


class DriverError(Exception):
    """The driver cannot suspend or resume a process, for the reason that is the message."""


class _LockArgs(ctypes.Structure):
    """``CUcheckpointLockArgs``."""

    _fields_ = (
        ("timeout_ms", ctypes.c_uint),
        ("reserved0", ctypes.c_uint),
        ("reserved1", ctypes.c_uint64 * 7),
    )


class _MemoryInfo(ctypes.Structure):
    """``nvmlMemory_t``."""

    _fields_ = tuple((name, ctypes.c_ulonglong) for name in ("total", "free", "used"))


class CheckpointApi:
    """The checkpoint functions of the CUDA driver."""

    def __init__(self, library: str = LIBRARY) -> None:
        """Load the driver; raise DriverError if it is missing or lacks the functions."""
        try:
            self._cuda = ctypes.CDLL(library)
        except OSError:
            raise DriverError(f"there is no {library}") from None
        if not hasattr(self._cuda, f"{_PREFIX}Checkpoint"):
            raise DriverError("the driver has no checkpoint API: expected version 570 or later")
        self._check("cuInit", self._cuda.cuInit(0))

    def state(self, pid: int) -> int | None:
        """Return the state of a CUDA process, None if a process uses no CUDA."""
        state = ctypes.c_int(-1)
        if self._cuda.cuCheckpointProcessGetState(pid, ctypes.byref(state)):
            return None
        return state.value

    def suspend(self, pids: Sequence[int], lock_ms: int) -> None:
        """Move the device memory of CUDA processes to the host; on failure all run on."""
        try:
            for pid in pids:
                self._call("Lock", pid, _LockArgs(timeout_ms=lock_ms))
            for pid in pids:
                self._call("Checkpoint", pid)
        except DriverError:
            self.resume(pids)
            raise

    def resume(self, pids: Sequence[int]) -> None:
        """Move device memory back where it is on the host, and let the processes run on."""
        states = {pid: self.state(pid) for pid in pids}
        for pid, state in states.items():
            if state == _CHECKPOINTED:
                self._call("Restore", pid)
        for pid, state in states.items():
            if state in (_LOCKED, _CHECKPOINTED):
                self._call("Unlock", pid)
            elif state != _RUNNING:
                raise DriverError(f"process {pid} is in state {state}")

    def _call(self, name: str, pid: int, arguments: ctypes.Structure | None = None) -> None:
        passed = None if arguments is None else ctypes.byref(arguments)
        self._check(f"{_PREFIX}{name}", getattr(self._cuda, f"{_PREFIX}{name}")(pid, passed))

    def _check(self, function: str, status: int) -> None:
        if status:
            name = ctypes.c_char_p()
            self._cuda.cuGetErrorName(status, ctypes.byref(name))
            known = f" ({name.value.decode(errors='replace')})" if name.value else ""
            raise DriverError(f"{function} returned {status}{known}")


def device_gib(uuid: str) -> float:
    """Return the memory used on a GPU; 0 if NVML cannot tell."""
    try:
        nvml = ctypes.CDLL(_NVML)
        handle, memory = ctypes.c_void_p(), _MemoryInfo()
        failed = (
            nvml.nvmlInit_v2()
            or nvml.nvmlDeviceGetHandleByUUID(uuid.encode(), ctypes.byref(handle))
            or nvml.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory))
        )
    except (OSError, AttributeError):
        return 0.0
    return 0.0 if failed else memory.used / _GIB


def uses_device(pid: int) -> bool:
    """Return whether a process has opened an NVIDIA device."""
    for file in Path(f"/proc/{pid}/fd").glob("*"):
        with suppress(OSError):
            if os.readlink(file).startswith(_DEVICES):
                return True
    return False


def _suspend(lock_ms: int, room_gib: float, uuid: str, pids: Sequence[int]) -> dict[str, Any]:
    api = CheckpointApi()
    states = {pid: state for pid in pids if (state := api.state(pid)) is not None}
    if not states:  # they may not have begun to use the device
        if users := [pid for pid in pids if uses_device(pid)]:
            raise DriverError(f"process {users[0]} uses the device otherwise than by CUDA")
        return {"pids": [], "seconds": 0.0}
    if handlers := [pid for pid in states if has_stop_handler(pid)]:
        raise DriverError(f"process {handlers[0]} handles SIGTERM itself")
    if (used_gib := device_gib(uuid)) > room_gib:
        raise DriverError(f"{used_gib:.1f} GiB on the device: room for {max(room_gib, 0):.1f} GiB")
    began = time.monotonic()
    api.suspend([*states], lock_ms)
    return {"pids": [*states], "seconds": time.monotonic() - began}


def _resume(pids: Sequence[int]) -> dict[str, Any]:
    api, began = CheckpointApi(), time.monotonic()
    api.resume(pids)
    return {"pids": [*pids], "seconds": time.monotonic() - began}


def main() -> int:
    """Suspend or resume the processes that the arguments name; print the answer."""
    # The kernel ends this process with its keeper, which would not hear the answer.
    ctypes.CDLL(None).prctl(_SIGNAL_ON_PARENT_DEATH, signal.SIGKILL, 0, 0, 0)
    operation, *arguments = sys.argv[1:]
    try:
        if operation == "suspend":
            lock_ms, room_gib, uuid, *pids = arguments
            answer = _suspend(int(lock_ms), float(room_gib), uuid, [*map(int, pids)])
        else:
            answer = _resume([*map(int, arguments)])
    except DriverError as error:
        answer = {"problem": str(error)}
    sys.stdout.write(json.dumps(answer))
    return 0


if __name__ == "__main__":
    sys.exit(main())
