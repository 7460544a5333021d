"""Probe program that the engine suite runs as a job: it reports its environment and its end.

``python probe.py REPORT_DIR MODE [NUMBER]`` writes ``<lease>.<rank>.json`` and then acts according
to its mode. It needs the standard library only.
"""

import fcntl
import json
import os
import signal
import socket
import sys
import time
from pathlib import Path

LEFT = 85
_MEET_S = 30.0


def main() -> int:
    """Claim the device, report, and act according to the mode."""
    reports, mode = Path(sys.argv[1]), sys.argv[2]
    number = float(sys.argv[3]) if len(sys.argv) > 3 else 0.0
    get = os.environ.get
    lease, rank = get("FAIRLEAD_LEASE", ""), get("FAIRLEAD_RANK", "")
    if mode == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    else:
        signal.signal(signal.SIGTERM, lambda *_: _leave(reports, lease, rank))
    alone = _claim(reports)
    _write(
        reports / f"{lease}.{rank}.json",
        {
            "environment": dict(os.environ),
            "directory": str(Path.cwd()),
            "pid": os.getpid(),
            "alone": alone,
            "times": _times(reports / f"{lease}.{rank}.times"),
        },
    )
    _print(f"member {rank} of lease {lease} speaking")
    if mode == "meet":
        return _meet(int(rank), int(get("WORLD_SIZE", "1")))
    if mode == "exit":
        return int(number)
    if mode == "fails-on":  # the member of this rank fails, the others wait
        if int(rank) == int(number):
            _await_all(reports, lease, int(get("WORLD_SIZE", "1")))
            return 3
        time.sleep(600)
    for step in range(1, 4):
        _print(f"step {step}")
    time.sleep(number or 600.0)
    return 0


def _leave(reports: Path, lease: str, rank: str) -> None:
    _write(reports / f"{lease}.{rank}.left.json", {"at": time.time()})
    os._exit(LEFT)


def _claim(reports: Path) -> bool:
    """Lock this member's device until its end; return whether it was free."""
    node, numbers = os.environ["FAIRLEAD_NODE"], os.environ["FAIRLEAD_DEVICES"].split(",")
    number = numbers[int(os.environ["FAIRLEAD_LOCAL_RANK"])]
    descriptor = os.open(reports / f"device-{node}-{number}", os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True  # the open descriptor holds the lock until the process ends


def _times(path: Path) -> int:
    """Return the number of starts of this member of this lease."""
    with path.open("a", encoding="ascii") as file:
        file.write("x")
        return file.tell()


def _await_all(reports: Path, lease: str, world_size: int) -> None:
    """Wait until all members have reported; members stopped earlier never report."""
    until = time.monotonic() + _MEET_S
    expected = [reports / f"{lease}.{rank}.json" for rank in range(world_size)]
    while not all(path.exists() for path in expected) and time.monotonic() < until:
        time.sleep(0.05)


def _meet(rank: int, world_size: int) -> int:
    """Connect the gang at its address: all members connect to rank 0."""
    address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    if rank == 0:
        with socket.create_server(address) as server:
            server.settimeout(_MEET_S)
            for _ in range(world_size - 1):
                server.accept()[0].close()
        return 0
    until = time.monotonic() + _MEET_S
    while time.monotonic() < until:
        try:
            socket.create_connection(address, timeout=1.0).close()
        except OSError:
            time.sleep(0.05)
        else:
            return 0
    return 4


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _write(path: Path, value: dict[str, object]) -> None:
    # No fairlead.atomic_file: this program needs the standard library only.
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    temporary.write_text(json.dumps(value), encoding="utf-8")
    temporary.replace(path)


if __name__ == "__main__":
    sys.exit(main())
