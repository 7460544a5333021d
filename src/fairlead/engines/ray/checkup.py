"""Checks of a Ray cluster for the Ray engine: from this machine to each node."""

import dataclasses
import importlib.util
import json
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fairlead.engines.plugin import Site
from fairlead.engines.ray.nodes import RayNode
from fairlead.engines.shared.checkup.findings import Finding
from fairlead.engines.shared.checkup.nodes import check_nodes
from fairlead.engines.shared.nodes.registry import natural_sort_key

_TIMEOUT_S = 60.0


def check_ray(site: Site, options: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield the findings; stop at the first that makes later checks pointless."""
    if importlib.util.find_spec("ray") is None:
        yield Finding("Ray", "wrong", "Ray is not installed here", "pip install 'fairlead[ray]'")
        return
    address, here = str(options.get("address", "auto")), str(options.get("here", ""))
    problem = _connection_error(address)
    if problem:  # Ray itself would retry for a minute
        yield _unreachable(address, problem)
        return
    command = [sys.executable, "-m", "fairlead.engines.ray.probe", address, here]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        yield _unreachable(address, f"no answer within {_TIMEOUT_S:g} s")
        return
    if done.returncode:
        yield _unreachable(address, done.stderr.strip().rpartition("\n")[2])
        return
    import ray  # noqa: PLC0415  # slow to import, and optional

    chosen = [name for name in str(options.get("accelerators", "")).split("+") if name]
    listed = (RayNode.read(node, chosen) for node in json.loads(done.stdout))
    nodes = sorted(listed, key=lambda node: natural_sort_key(node.name))
    yield Finding("Ray", "ok", f"Ray {ray.__version__} at {address}")
    yield from _devices(nodes)
    names = [node.name for node in nodes if node.alive and node.devices]
    if options.get("node_dir"):
        state = "not needed: checkpoints and logs are transferred through Ray"
        yield Finding("shared directory", "ok", state)
    elif names:
        yield from check_nodes(site, names, _Probes(command))


def _connection_error(address: str) -> str:
    """Return the error of a connection to host:port, empty if it succeeds or Ray must find it."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        return ""
    try:
        with socket.create_connection((host, int(port)), timeout=5.0):
            return ""
    except OSError as error:
        return str(error)


def _unreachable(address: str, error: str) -> Finding:
    if "version" in error.lower():
        return Finding("Ray", "wrong", error, "install the cluster's versions of Ray and Python")
    if address == "auto":
        fix = "run the server on a node of the cluster, or set ray:address=HOST:PORT"
    else:
        fix = "start it (`ray start --head --port=…`), or correct ray:address=HOST:PORT,here=IP"
    return Finding("Ray", "wrong", f"Ray at {address} is unreachable: {error}", fix)


def _devices(nodes: Sequence[RayNode]) -> Iterator[Finding]:
    alive = [node for node in nodes if node.alive]
    counts: dict[str, int] = {}
    for node in alive:
        for accelerator in node.devices:
            counts[accelerator] = counts.get(accelerator, 0) + 1
    if counts:
        devices = ", ".join(f"{count} {name}" for name, count in counts.items())
        nodes_text = "1 node" if len(alive) == 1 else f"{len(alive)} nodes"
        yield Finding("devices", "ok", f"{devices} on {nodes_text}")
    else:
        fix = "start nodes with --num-gpus=N or --resources='{\"V100\": 2}', or name the resources"
        problem = f"none of {len(alive)} nodes has accelerators"
        yield Finding("devices", "wrong", problem, f"{fix}: ray:accelerators=NAME+NAME")
    names = {node.name for node in alive}
    dead = sorted({node.name for node in nodes if not node.alive} - names)
    if dead:
        are = "node is" if len(dead) == 1 else "nodes are"
        problem = f"{len(dead)} {are} dead: {', '.join(dead[:3])}"
        yield Finding("nodes", "warning", problem, "restart Ray there: `ray start --address=…`")


@dataclasses.dataclass
class _Probes:
    """Runs a probe on each node as a Ray task, through a separate process."""

    command: Sequence[str]
    _process: "subprocess.Popen[bytes] | None" = None

    def start(self, directory: Path, nodes: Sequence[str]) -> Mapping[str, str]:
        """Start a probe on each node; a failed one writes the error to its log."""
        self._process = subprocess.Popen(
            [*self.command, str(directory), *nodes],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        return {}

    def run(self) -> bool:
        """Return whether the process still waits for nodes."""
        return self._process is not None and self._process.poll() is None

    def end(self) -> None:
        """Kill the process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
