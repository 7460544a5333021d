"""Training job that records every step, for tests that kill it.

``python -m tests.kills.train HOME STEPS``: members of a gang synchronise after every step, lock
their device for their lifetime, and write to ``HOME/complaints`` when another process holds the
lock. Needs the standard library only.
"""

import fcntl
import json
import os
import socket
import sys
import time

from fairlead import job

_MEET_S = 20.0
_EVERY = 20
"""steps between explicit checkpoints"""


def chain(value: int, step: int) -> int:
    """Return the next number of a chain that proves each step was made once and in order."""
    return (value * 1_103_515_245 + step + 12_345) & 0x7FFF_FFFF


def _append(path: str, line: str) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(file, line.encode())
    os.close(file)


def _hold_device(home: str, lease: str) -> None:
    """Lock this member's device until the process ends; complain if it is locked."""
    local_rank = int(os.environ["FAIRLEAD_LOCAL_RANK"])
    number = os.environ["FAIRLEAD_DEVICES"].split(",")[local_rank]
    device = f"{os.environ['FAIRLEAD_NODE']}.{number}"
    file = os.open(f"{home}/devices/{device}", os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        other = os.pread(file, 100, 0).decode()
        _append(f"{home}/complaints", f"leases {lease} and {other} are on {device}\n")
    os.ftruncate(file, 0)
    os.pwrite(file, lease.encode(), 0)


class _Gang:
    """Barrier of a gang: each member waits for all others."""

    def __init__(self, rank: int, size: int) -> None:
        self._peers: list[socket.socket] = []
        if size == 1:
            return
        address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
        if rank == 0:
            with socket.create_server(address) as door:
                door.settimeout(_MEET_S)
                self._peers = [door.accept()[0] for _ in range(size - 1)]
        else:
            self._peers = [_connect(address)]
        self._first = rank == 0

    def meet(self) -> None:
        """Wait for all members; raise ConnectionError if one has left."""
        for peer in self._peers if self._peers and self._first else ():
            _receive(peer)
        for peer in self._peers:
            peer.sendall(b".")
        for peer in self._peers if self._peers and not self._first else ():
            _receive(peer)


def _connect(address: tuple[str, int]) -> socket.socket:
    until = time.monotonic() + _MEET_S
    while True:
        try:
            return socket.create_connection(address)
        except ConnectionRefusedError:
            if time.monotonic() > until:
                raise
            time.sleep(0.02)


def _receive(peer: socket.socket) -> None:
    if not peer.recv(1):
        raise ConnectionError("a member of the gang has left")


def main() -> None:
    """Train from the last checkpoint."""
    home, steps = sys.argv[1], int(sys.argv[2])
    lease, name = os.environ["FAIRLEAD_LEASE"], os.environ["FAIRLEAD_JOB"]
    _hold_device(home, lease)
    run = job.attach()
    model = {"made": 0, "chain": 0}
    run.register(model=model)
    trace = f"{home}/steps/{name}.{run.rank}"
    _append(trace, f"{lease} begins {run.steps_done} {model['made']}\n")
    gang = _Gang(run.rank, run.world_size)
    for i in run.steps(range(steps)):
        gang.meet()
        model["chain"] = chain(model["chain"], i)
        model["made"] += 1
        _append(trace, f"{lease} makes {i}\n")
        if i % _EVERY == _EVERY - 1:
            run.checkpoint()
    with open(f"{home}/results/{name}.{run.rank}.tmp", "w", encoding="ascii") as file:
        json.dump(model, file)
    os.replace(file.name, file.name.removesuffix(".tmp"))


if __name__ == "__main__":
    main()
