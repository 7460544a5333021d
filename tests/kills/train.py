"""Training job that records every step, for tests that kill it.

``python -m tests.kills.train HOME STEPS [copies]``: members of a gang meet after every step,
lock their device for their lifetime, and write to ``HOME/complaints`` when another process holds
the lock. A process that may park unlocks its device with every checkpoint. A job that may train in
copies records its steps as trained: each copy makes some of them. Needs the standard library only.
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


class _Device:
    """The device of this member, which no other process may use."""

    def __init__(self, home: str) -> None:
        local_rank = int(os.environ["FAIRLEAD_LOCAL_RANK"])
        number = os.environ["FAIRLEAD_DEVICES"].split(",")[local_rank]
        self._home, self._name = home, f"{os.environ['FAIRLEAD_NODE']}.{number}"
        self._file = os.open(f"{home}/devices/{self._name}", os.O_RDWR | os.O_CREAT)
        self._may_park = "FAIRLEAD_KEEPER_FD" in os.environ
        self._is_held = False
        if not self._may_park:
            self.hold(os.environ["FAIRLEAD_LEASE"])

    def hold(self, lease: object) -> None:
        """Lock the device, unless it is; complain if another process holds the lock."""
        if self._is_held:
            return
        self._is_held = True
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            other = os.pread(self._file, 100, 0).decode()
            line = f"leases {lease} and {other} are on {self._name}\n"
            _append(f"{self._home}/complaints", line)
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, str(lease).encode(), 0)

    def state_dict(self) -> dict[str, object]:
        """Unlock the device of a process that may park: its last call before that is this one."""
        if self._may_park and self._is_held:
            self._is_held = False
            fcntl.flock(self._file, fcntl.LOCK_UN)
        return {}

    def load_state_dict(self, state: dict[str, object]) -> None:
        """Take the state, which is empty."""


class _Gang:
    """Barrier of a gang: each member waits for all others."""

    def __init__(self, meeting: str, rank: int, size: int) -> None:
        """Meet at the port in the file ``meeting``: processes that stay know no later address."""
        self._peers: list[socket.socket] = []
        if size == 1:
            return
        if rank == 0:
            with socket.create_server(("127.0.0.1", 0)) as door:
                door.settimeout(_MEET_S)
                with open(f"{meeting}.tmp", "w", encoding="ascii") as file:
                    file.write(str(door.getsockname()[1]))
                os.replace(file.name, meeting)
                self._peers = [door.accept()[0] for _ in range(size - 1)]
        else:
            self._peers = [_connect(meeting)]
        self._first = rank == 0

    def leave(self) -> None:
        """Close the connections to all other members."""
        for peer in self._peers:
            peer.close()

    def meet(self) -> None:
        """Wait for all members; raise ConnectionError if one has left."""
        for peer in self._peers if self._peers and self._first else ():
            _receive(peer)
        for peer in self._peers:
            peer.sendall(b".")
        for peer in self._peers if self._peers and not self._first else ():
            _receive(peer)


def _connect(meeting: str) -> socket.socket:
    until = time.monotonic() + _MEET_S
    while True:
        try:
            with open(meeting, encoding="ascii") as file:
                return socket.create_connection(("127.0.0.1", int(file.read())))
        except (FileNotFoundError, ConnectionRefusedError):
            if time.monotonic() > until:
                raise
            time.sleep(0.02)


def _receive(peer: socket.socket) -> None:
    if not peer.recv(1):
        raise ConnectionError("a member of the gang has left")


def main() -> None:
    """Train from the last checkpoint."""
    home, steps = sys.argv[1], int(sys.argv[2])
    name, device = os.environ["FAIRLEAD_JOB"], _Device(home)
    run = job.attach()
    model = {"made": 0, "chain": 0}
    run.register(model=model, device=device)
    trace, lease = f"{home}/steps/{name}.{run.rank}", run.lease
    _append(trace, f"{lease} begins {run.steps_done} {model['made']}\n")
    meeting = f"{home}/meetings/{name}."
    gang = _Gang(f"{meeting}{lease}", run.rank, run.world_size)
    run.on_resize()
    may_fork = len(sys.argv) > 3
    for i in run.steps(range(steps)):
        if run.lease != lease:
            lease = run.lease
            _append(trace, f"{lease} begins {run.steps_done} {model['made']}\n")
            gang.leave()
            gang = _Gang(f"{meeting}{lease}", run.rank, run.world_size)
        device.hold(lease)
        gang.meet()
        model["chain"] = chain(model["chain"], i)
        model["made"] += 1
        _append(trace, f"{lease} {'trains' if may_fork else 'makes'} {i}\n")
        if i % _EVERY == _EVERY - 1:
            run.checkpoint()
    with open(f"{home}/results/{name}.{run.rank}.tmp", "w", encoding="ascii") as file:
        json.dump(model, file)
    os.replace(file.name, file.name.removesuffix(".tmp"))


if __name__ == "__main__":
    main()
