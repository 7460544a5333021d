"""Partition a GPU into MIG devices, run a command, and undo the partition.

    python -m benchmarks.physical.mig 3g.71gb,2g.35gb,1g.18gb,1g.18gb COMMAND...

Needs root, and a GPU that no process uses.
"""

import signal
import subprocess
import sys
import time
from typing import NoReturn

_UNDO_S = 60.0
"""seconds to wait until the processes of the command have left the GPU"""


def _nvidia_smi(*arguments: str, check: bool = True) -> bool:
    """Run nvidia-smi; return whether it succeeded."""
    result = subprocess.run(
        ["nvidia-smi", *arguments], capture_output=True, text=True, check=False
    )
    if check and result.returncode:
        sys.exit(f"nvidia-smi {' '.join(arguments)}: {result.stdout}{result.stderr}")
    return result.returncode == 0


def _remove_devices() -> None:
    _nvidia_smi("mig", "-dci", check=False)
    _nvidia_smi("mig", "-dgi", check=False)


def _undo() -> None:
    """Remove all MIG devices, and leave MIG mode."""
    until = time.monotonic() + _UNDO_S
    while True:
        _remove_devices()
        if _nvidia_smi("-mig", "0", check=time.monotonic() > until):
            return
        time.sleep(1.0)


def _stop(number: int, frame: object) -> NoReturn:
    del frame
    sys.exit(128 + number)


def main() -> int:
    if len(sys.argv) < 3:
        sys.exit((__doc__ or "").strip())
    signal.signal(signal.SIGTERM, _stop)  # undoes the partition, too
    try:
        _nvidia_smi("-mig", "1")
        _remove_devices()  # of a run that was killed
        _nvidia_smi("mig", "-cgi", sys.argv[1], "-C")
        subprocess.run(["nvidia-smi", "-L"], check=True)
        return subprocess.run(sys.argv[2:], check=False).returncode
    finally:
        _undo()


if __name__ == "__main__":
    sys.exit(main())
