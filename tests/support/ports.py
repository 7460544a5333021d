"""Ports for servers that tests start."""

import socket


def free_port(host: str = "127.0.0.1") -> int:
    """Return a port of this machine that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])
