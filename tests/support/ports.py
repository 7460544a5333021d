"""Ports for servers that tests start."""

import itertools
import os
import socket

_FIRST, _PER_PROCESS, _PROCESSES = 10_200, 900, 10
"""below the ports that systems choose, so that no client takes one, and those of gangs"""
_worker = os.environ.get("PYTEST_XDIST_WORKER", f"gw{os.getpid()}").removeprefix("gw")
_candidates = itertools.cycle(
    _FIRST + int(_worker) % _PROCESSES * _PER_PROCESS + (os.getpid() + number) % _PER_PROCESS
    for number in range(_PER_PROCESS)
)
"""ports of this process, each of which a server keeps through its restarts; those of another run
begin elsewhere"""


def free_port(host: str = "127.0.0.1") -> int:
    """Return a port of this machine that nobody listens on."""
    for port in itertools.islice(_candidates, _PER_PROCESS):
        with socket.socket() as probe:
            try:
                probe.bind((host, port))
            except OSError:
                continue
            return port
    raise AssertionError("no free port")
