"""Checkup of nodes: a probe on each tests data directory, clock and the server's address."""

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

from fairlead.engines.plugin import ANY_ADDRESS, LOOPBACK, Site
from fairlead.engines.shared.checkup import probe
from fairlead.engines.shared.checkup.findings import MAX_CLOCK_SKEW_S, Finding
from fairlead.version import __version__

MAX_PROBED_NODES = 16
"""maximum number of nodes to probe: enough to find nodes that are set up differently"""
_TIMEOUT_S = 30.0
_VISIBLE_AFTER_S = 5.0
"""seconds that a shared file system may take to show a new file"""
_LIVENESS_POLL_S = 2.0
_ANSWER_POLL_S = 0.1


class Probes(Protocol):
    """Starts the probe of a directory on nodes."""

    def start(self, directory: Path, nodes: Sequence[str]) -> Mapping[str, str]:
        """Return the nodes where the probe could not be started, with the reason."""
        ...

    def run(self) -> bool:
        """Return whether any probe still waits or runs."""
        ...

    def end(self) -> None:
        """End the probes that still wait or run."""
        ...


def check_nodes(
    site: Site, nodes: Sequence[str], probes: Probes, node_dir: str = ""
) -> Iterator[Finding]:
    """Probe nodes and yield the findings.

    ``node_dir`` is a directory on each node to which jobs save.
    """
    probed = list(nodes)[:MAX_PROBED_NODES]
    try:
        site.data.mkdir(parents=True, exist_ok=True, mode=0o700)
        directory = Path(tempfile.mkdtemp(prefix="doctor-", dir=site.data))
    except OSError as error:
        fix = "give --data a directory that this user and all nodes can write to"
        problem = f"cannot write to {site.data}: {error.strerror}"
        yield Finding("shared directory", "wrong", problem, fix)
        return
    try:
        with ExitStack() as stack:
            host, port = _listen(site, stack)
            probe.write_question(directory, host, port, node_dir)
            lock = stack.enter_context((directory / "lock").open("rb"))
            fcntl.flock(lock, fcntl.LOCK_EX)
            failed = probes.start(directory, probed)
            answers = _collect(directory, [n for n in probed if n not in failed], probes)
            logs = {node: _last_line(directory / f"{node}.log") for node in probed}
        yield from _findings(site, probed, failed, answers, logs)
        if node_dir and answers:
            yield _check_node_dirs(node_dir, answers)
    finally:
        probes.end()
        shutil.rmtree(directory, ignore_errors=True)


def _listen(site: Site, stack: ExitStack) -> tuple[str, int]:
    """Return the server's address for nodes; listen there until the stack is closed."""
    host = os.uname().nodename if site.host in ANY_ADDRESS else site.host
    with suppress(OSError):
        listener = stack.enter_context(socket.socket())
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((site.host, site.port))
        listener.listen(MAX_PROBED_NODES)
    return host, site.port


def _collect(directory: Path, nodes: Sequence[str], probes: Probes) -> dict[str, dict[str, Any]]:
    """Return the answers of nodes, each with the lead of the node's clock."""
    answers: dict[str, dict[str, Any]] = {}
    now = time.monotonic()
    until, poll_at = now + _TIMEOUT_S, now + _LIVENESS_POLL_S
    while len(answers) < len(nodes) and time.monotonic() < until:
        if time.monotonic() > poll_at:
            poll_at += _LIVENESS_POLL_S
            if not probes.run():  # no further answer will be written
                until = min(until, time.monotonic() + _VISIBLE_AFTER_S)
        for node in nodes:
            path = directory / "answers" / f"{node}.json"
            if node not in answers and path.exists():
                read_at = time.time()
                answers[node] = json.loads(path.read_text(encoding="ascii"))
                answers[node]["ahead_s"] = answers[node]["at"] - read_at
        time.sleep(_ANSWER_POLL_S)
    return answers


def _findings(
    site: Site,
    probed: Sequence[str],
    failed: Mapping[str, str],
    answers: Mapping[str, dict[str, Any]],
    logs: Mapping[str, str],
) -> Iterator[Finding]:
    silent = [node for node in probed if node not in answers and node not in failed]
    for node, reason in list(failed.items())[:3]:
        yield Finding("nodes", "wrong", f"{node}: {reason}", "let this user start jobs there")
    if silent:
        log = next((logs[node] for node in silent if logs[node]), "")
        if log and str(site.data) not in log:
            fix = "install Fairlead there under the same path, or give the engine python=PATH"
        else:
            fix = f"make {site.data} writable under this path on all nodes; or see the job"
        yield Finding("nodes", "wrong", f"no answer from {_names(silent)} {log}".rstrip(), fix)
    if not answers:
        return
    yield Finding("shared directory", "ok", f"{len(answers)} of {len(probed)} nodes write to it")
    if any(not answer["locks"] for answer in answers.values()):
        problem = f"locks on {site.data} do not work across nodes"
        fix = "use a file system with locks across nodes: NFS 4, Lustre mounted with flock, …"
        yield Finding("shared directory", "wrong", problem, fix)
    yield _check_versions(answers)
    yield _check_clocks(answers)
    yield _check_server_reachable(site, answers)


def _check_node_dirs(node_dir: str, answers: Mapping[str, dict[str, Any]]) -> Finding:
    failed = {node: answer["writes"] for node, answer in answers.items() if answer["writes"]}
    if not failed:
        return Finding("node directory", "ok", f"nodes write to {node_dir}")
    problem = f"{_names(list(failed))} cannot write to {next(iter(failed.values()))}"
    fix = "give node-dir= a directory on a disk of every node, writable for the user of jobs"
    return Finding("node directory", "wrong", problem, fix)


def _check_versions(answers: Mapping[str, dict[str, Any]]) -> Finding:
    others = {answer["version"] for answer in answers.values()} - {__version__}
    if not others:
        return Finding("job library", "ok", f"nodes have Fairlead {__version__}")
    problem = f"nodes have Fairlead {', '.join(sorted(others))}, the server {__version__}"
    return Finding("job library", "warning", problem, f"install {__version__} there")


def _check_clocks(answers: Mapping[str, dict[str, Any]]) -> Finding:
    skewed = {
        node: answer["ahead_s"]
        for node, answer in answers.items()
        if not -MAX_CLOCK_SKEW_S - _VISIBLE_AFTER_S < answer["ahead_s"] < MAX_CLOCK_SKEW_S
    }
    if not skewed:
        return Finding("clocks", "ok", "nodes have the server's time")
    node = max(skewed, key=lambda name: abs(skewed[name]))
    problem = f"the clock of {node} differs from the server's by {skewed[node]:+.0f} s"
    return Finding("clocks", "warning", problem, "set all clocks by NTP: logs would mislead")


def _check_server_reachable(site: Site, answers: Mapping[str, dict[str, Any]]) -> Finding:
    failed = {node: answer["reaches"] for node, answer in answers.items() if answer["reaches"]}
    if not failed:
        return Finding("port", "ok", f"nodes reach {site.host}:{site.port}")
    reason = next(iter(failed.values()))
    if site.host in LOOPBACK:
        fix = "give --host 0.0.0.0 with --tls-certificate and --tls-key"
    else:
        fix = f"let nodes connect to port {site.port} of this machine"
    problem = f"{_names(list(failed))} cannot reach {site.host}:{site.port}: {reason}"
    return Finding("port", "wrong", problem, fix)


def _names(nodes: Sequence[str]) -> str:
    more = f" and {len(nodes) - 3} more" if len(nodes) > 3 else ""
    return ", ".join(nodes[:3]) + more


def _last_line(path: Path) -> str:
    with suppress(OSError):
        return path.read_text(encoding="utf-8", errors="replace").strip().rpartition("\n")[2]
    return ""
