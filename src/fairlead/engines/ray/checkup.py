"""Whether a Ray cluster is fit for the Ray engine: from here to what its nodes see."""

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

_PATIENCE_S = 60.0


def check_ray(site: Site, options: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield a finding for each thing; stop at the first that makes the next ones meaningless."""
    if importlib.util.find_spec("ray") is None:
        yield Finding("Ray", "wrong", "Ray is not installed here", "pip install 'fairlead[ray]'")
        return
    address, here = str(options.get("address", "auto")), str(options.get("here", ""))
    refused = _refused(address)
    if refused:  # Ray itself would try for a minute
        yield _unreachable(address, refused)
        return
    command = [sys.executable, "-m", "fairlead.engines.ray.probe", address, here]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_PATIENCE_S, check=False
        )
    except subprocess.TimeoutExpired:
        yield _unreachable(address, f"no answer in {_PATIENCE_S:g} s")
        return
    if done.returncode:
        yield _unreachable(address, done.stderr.strip().rpartition("\n")[2])
        return
    import ray  # noqa: PLC0415  # slow to import, and optional

    chosen = [name for name in str(options.get("accelerators", "")).split("+") if name]
    listed = (RayNode.read(one, chosen) for one in json.loads(done.stdout))
    nodes = sorted(listed, key=lambda node: natural_sort_key(node.name))
    yield Finding("Ray", "ok", f"Ray {ray.__version__} at {address}")
    yield from _devices(nodes)
    asked = [node.name for node in nodes if node.alive and node.devices]
    if options.get("node_dir"):
        said = "nodes share none: checkpoints and logs are carried through Ray"
        yield Finding("shared directory", "ok", said)
    elif asked:
        yield from check_nodes(site, asked, _Probes(command))


def _refused(address: str) -> str:
    """Return why nobody listens at host:port, empty if somebody does or Ray must find it."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        return ""
    try:
        with socket.create_connection((host, int(port)), timeout=5.0):
            return ""
    except OSError as error:
        return str(error)


def _unreachable(address: str, said: str) -> Finding:
    if "version" in said.lower():
        return Finding("Ray", "wrong", said, "install the cluster's versions of Ray and Python")
    if address == "auto":
        fix = "run the server on a node of the cluster, or give ray:address=HOST:PORT"
    else:
        fix = "start it (`ray start --head --port=…`), or correct ray:address=HOST:PORT,here=IP"
    return Finding("Ray", "wrong", f"Ray at {address} cannot be reached: {said}", fix)


def _devices(nodes: Sequence[RayNode]) -> Iterator[Finding]:
    alive = [node for node in nodes if node.alive]
    counts: dict[str, int] = {}
    for node in alive:
        for kind in node.devices:
            counts[kind] = counts.get(kind, 0) + 1
    if counts:
        said = ", ".join(f"{count} {kind}" for kind, count in counts.items())
        yield Finding("devices", "ok", f"{said} on {len(alive)} nodes")
    else:
        fix = "start nodes with --num-gpus=N or --resources='{\"V100\": 2}', or name the resources"
        said = f"none of {len(alive)} nodes has accelerators"
        yield Finding("devices", "wrong", said, f"{fix}: ray:accelerators=NAME+NAME")
    gone = [node.name for node in nodes if not node.alive]
    back = {node.name for node in alive}
    lost = sorted(set(gone) - back)
    if lost:
        said = f"{len(lost)} nodes are dead: {', '.join(lost[:3])}"
        yield Finding("nodes", "warning", said, "start Ray there again: `ray start --address=…`")


@dataclasses.dataclass
class _Probes:
    """Probes as Ray's tasks, one for each node, started by a process of their own."""

    command: Sequence[str]
    _process: "subprocess.Popen[bytes] | None" = None

    def start(self, directory: Path, nodes: Sequence[str]) -> Mapping[str, str]:
        """Have all nodes answer; who cannot says so in its log."""
        self._process = subprocess.Popen(
            [*self.command, str(directory), *nodes],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        return {}

    def run(self) -> bool:
        """Tell whether the process still waits for nodes."""
        return self._process is not None and self._process.poll() is None

    def end(self) -> None:
        """End it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
