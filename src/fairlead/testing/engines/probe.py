"""The program that the engine suite runs as a job: it tells what it was given, and how it ended.

``python engines_probe.py REPORT_DIR MODE [NUMBER]`` writes ``<lease>.<rank>.json`` and then does
as its mode says. It needs the standard library only and runs wherever an engine starts it.
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
    """Report, claim the device, and do as told."""
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
    _say(f"member {rank} of lease {lease} speaking")
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
        _say(f"step {step}")
    time.sleep(number or 600.0)
    return 0


def _leave(reports: Path, lease: str, rank: str) -> None:
    _write(reports / f"{lease}.{rank}.left.json", {"at": time.time()})
    os._exit(LEFT)


def _claim(reports: Path) -> bool:
    """Tell whether nobody else uses this member's device; hold it until the end."""
    node, numbers = os.environ["FAIRLEAD_NODE"], os.environ["FAIRLEAD_DEVICES"].split(",")
    mine = numbers[int(os.environ["FAIRLEAD_LOCAL_RANK"])]
    descriptor = os.open(reports / f"device-{node}-{mine}", os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True  # the descriptor stays open, and with it the claim, for as long as we live


def _times(path: Path) -> int:
    """Return how often this member of this lease was started."""
    with path.open("a", encoding="ascii") as file:
        file.write("x")
        return file.tell()


def _await_all(reports: Path, lease: str, world_size: int) -> None:
    """Wait until all members have spoken: who is told to leave before says nothing."""
    until = time.monotonic() + _MEET_S
    spoken = [reports / f"{lease}.{rank}.json" for rank in range(world_size)]
    while not all(path.exists() for path in spoken) and time.monotonic() < until:
        time.sleep(0.05)


def _meet(rank: int, world_size: int) -> int:
    """Meet the gang at its address: all come to rank 0, or the gang cannot train."""
    where = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    if rank == 0:
        with socket.create_server(where) as server:
            server.settimeout(_MEET_S)
            for _ in range(world_size - 1):
                server.accept()[0].close()
        return 0
    until = time.monotonic() + _MEET_S
    while time.monotonic() < until:
        try:
            socket.create_connection(where, timeout=1.0).close()
        except OSError:
            time.sleep(0.05)
        else:
            return 0
    return 4


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _write(path: Path, value: dict[str, object]) -> None:
    aside = path.with_suffix(f".{os.getpid()}.tmp")
    aside.write_text(json.dumps(value), encoding="utf-8")
    aside.replace(path)


if __name__ == "__main__":
    sys.exit(main())
