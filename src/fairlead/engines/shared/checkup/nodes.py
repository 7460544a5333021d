"""Whether nodes see the data directory, our clock and our address: each is asked, by a probe."""

import fcntl
import json
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Protocol

from fairlead import __version__
from fairlead.engines.plugin import LOOPBACK, Site
from fairlead.engines.shared.checkup import probe
from fairlead.engines.shared.checkup.findings import MAX_CLOCK_SKEW_S, Finding

MAX_PROBED_NODES = 16
"""that are asked: enough to find what is set up differently here and there"""
_PATIENCE_S = 30.0
_VISIBLE_AFTER_S = 5.0
"""what a shared file system may take to show a new file"""
_LOOK_S = 2.0


class Probes(Protocol):
    """Starts the probe of a directory on nodes."""

    def start(self, directory: Path, nodes: Sequence[str]) -> Mapping[str, str]:
        """Return the nodes where it could not be started, with the reason."""
        ...

    def run(self) -> bool:
        """Tell whether any probe still waits or runs."""
        ...

    def end(self) -> None:
        """End those that still wait or run."""
        ...


def check_nodes(
    site: Site, nodes: Sequence[str], probes: Probes, node_dir: str = ""
) -> Iterator[Finding]:
    """Ask nodes what they see, and yield what is not as it should be, or that all is.

    ``node_dir`` is a directory of each node's own to which jobs save.
    """
    asked = list(nodes)[:MAX_PROBED_NODES]
    try:
        site.data.mkdir(parents=True, exist_ok=True, mode=0o700)
        directory = Path(tempfile.mkdtemp(prefix="doctor-", dir=site.data))
    except OSError as error:
        fix = "give --data a directory that this user and all nodes can write to"
        said = f"{site.data} cannot be written to: {error.strerror}"
        yield Finding("shared directory", "wrong", said, fix)
        return
    try:
        with ExitStack() as stack:
            host, port = _address(site, stack)
            probe.ask(directory, host, port, node_dir)
            lock = stack.enter_context((directory / "lock").open("rb"))
            fcntl.flock(lock, fcntl.LOCK_EX)
            failed = probes.start(directory, asked)
            answers = _collect(directory, [n for n in asked if n not in failed], probes)
            logs = {node: _last_line(directory / f"{node}.log") for node in asked}
        yield from _judge(site, asked, failed, answers, logs)
        if node_dir and answers:
            yield _check_node_dirs(node_dir, answers)
    finally:
        probes.end()
        shutil.rmtree(directory, ignore_errors=True)


def _address(site: Site, stack: ExitStack) -> tuple[str, int]:
    """Return where nodes would reach the server; somebody listens there for the while."""
    host = os.uname().nodename if site.host in ("0.0.0.0", "::") else site.host
    with suppress(OSError):
        door = stack.enter_context(socket.socket())
        door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        door.bind((site.host, site.port))
        door.listen(MAX_PROBED_NODES)
    return host, site.port


def _collect(directory: Path, nodes: Sequence[str], probes: Probes) -> dict[str, dict[str, Any]]:
    """Return answers as they come, each with how far the node's clock is ahead."""
    found: dict[str, dict[str, Any]] = {}
    now = time.monotonic()
    until, look_at = now + _PATIENCE_S, now + _LOOK_S
    while len(found) < len(nodes) and time.monotonic() < until:
        if time.monotonic() > look_at:
            look_at += _LOOK_S
            if not probes.run():  # who has not answered yet will not
                until = min(until, time.monotonic() + _VISIBLE_AFTER_S)
        for node in nodes:
            path = directory / "answers" / f"{node}.json"
            if node not in found and path.exists():
                read_at = time.time()
                found[node] = json.loads(path.read_text(encoding="ascii"))
                found[node]["ahead_s"] = found[node]["at"] - read_at
        time.sleep(0.1)
    return found


def _judge(
    site: Site,
    asked: Sequence[str],
    failed: Mapping[str, str],
    answers: Mapping[str, dict[str, Any]],
    logs: Mapping[str, str],
) -> Iterator[Finding]:
    silent = [node for node in asked if node not in answers and node not in failed]
    for node, why in list(failed.items())[:3]:
        yield Finding("nodes", "wrong", f"{node}: {why}", "let this user start jobs there")
    if silent:
        said = next((logs[node] for node in silent if logs[node]), "")
        if said and str(site.data) not in said:
            fix = "install Fairlead there under the same path, or give the engine python=PATH"
        else:
            fix = f"let all nodes see {site.data} under this path, writable; or see the job"
        yield Finding("nodes", "wrong", f"no answer from {_names(silent)} {said}".rstrip(), fix)
    if not answers:
        return
    yield Finding("shared directory", "ok", f"{len(answers)} of {len(asked)} nodes write to it")
    if any(not one["locks"] for one in answers.values()):
        said = f"locks on {site.data} do not reach from node to node"
        fix = "use a file system whose locks do: NFS 4, Lustre mounted with flock, …"
        yield Finding("shared directory", "wrong", said, fix)
    yield from _versions(answers)
    yield from _clocks(answers)
    yield from _check_server_reachable(site, answers)


def _check_node_dirs(node_dir: str, answers: Mapping[str, dict[str, Any]]) -> Finding:
    bad = {node: one["writes"] for node, one in answers.items() if one["writes"]}
    if not bad:
        return Finding("node directory", "ok", f"nodes write to {node_dir}")
    said = f"{_names(list(bad))} cannot write to {next(iter(bad.values()))}"
    fix = "give node-dir= a directory on a disk of every node, writable for who runs jobs there"
    return Finding("node directory", "wrong", said, fix)


def _versions(answers: Mapping[str, dict[str, Any]]) -> Iterator[Finding]:
    others = {one["version"] for one in answers.values()} - {__version__}
    if others:
        said = f"nodes have Fairlead {', '.join(sorted(others))}, this is {__version__}"
        yield Finding("job library", "warning", said, f"install {__version__} there")
    else:
        yield Finding("job library", "ok", f"nodes have Fairlead {__version__}")


def _clocks(answers: Mapping[str, dict[str, Any]]) -> Iterator[Finding]:
    off = {
        node: one["ahead_s"]
        for node, one in answers.items()
        if not -MAX_CLOCK_SKEW_S - _VISIBLE_AFTER_S < one["ahead_s"] < MAX_CLOCK_SKEW_S
    }
    if off:
        node = max(off, key=lambda name: abs(off[name]))
        said = f"the clock of {node} differs from ours by {off[node]:+.0f} s"
        yield Finding("clocks", "warning", said, "let NTP set all clocks: logs would mislead")
    else:
        yield Finding("clocks", "ok", "nodes have our time")


def _check_server_reachable(
    site: Site, answers: Mapping[str, dict[str, Any]]
) -> Iterator[Finding]:
    away = {node: one["reaches"] for node, one in answers.items() if one["reaches"]}
    if not away:
        yield Finding("port", "ok", f"nodes reach {site.host}:{site.port}")
        return
    why = next(iter(away.values()))
    if site.host in LOOPBACK:
        fix = "give --host 0.0.0.0 with --tls-certificate and --tls-key"
    else:
        fix = f"let nodes connect to port {site.port} of this machine"
    said = f"{_names(list(away))} cannot reach {site.host}:{site.port}: {why}"
    yield Finding("port", "wrong", said, fix)


def _names(nodes: Sequence[str]) -> str:
    more = f" and {len(nodes) - 3} more" if len(nodes) > 3 else ""
    return ", ".join(nodes[:3]) + more


def _last_line(path: Path) -> str:
    with suppress(OSError):
        return path.read_text(encoding="utf-8", errors="replace").strip().rpartition("\n")[2]
    return ""
