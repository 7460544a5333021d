"""A private Ray of several nodes on this machine's loopback addresses, for tests and trials.

Each node has an address of its own and a Ray of its own (a raylet), so that nodes can fail and
return one by one, and the head too. Accelerators are numbers in Ray's books: one node says that it
has GPUs, the others have custom resources.
"""

import importlib.util
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fairlead.engines.ray.connection import connection
from fairlead.engines.ray.keeper import RAYLET
from fairlead.model.cluster import Cluster, Node
from fairlead.model.errors import FairleadError

HEAD = "n4"
NODES = (
    Node("n1", ("v100", "v100"), "r1"),
    Node("n2", ("p100", "p100"), "r1"),
    Node("n3", ("k80", "k80", "k80", "k80"), "r2"),
    Node(HEAD, ("v100", "v100"), "r2"),
)
_WITH_GPUS = ("n1",)
_SETTINGS = {
    # A dead node is seen in about two seconds.
    "health_check_initial_delay_ms": 0,
    "health_check_period_ms": 500,
    "health_check_timeout_ms": 1000,
    "health_check_failure_threshold": 3,
    # Workers are started when they are wanted: memory is scarce where all nodes are one machine.
    "enable_worker_prestart": False,
    "prestart_worker_first_driver": False,
}
_MEMORY = 100_000_000
_PATIENCE_S = 90.0


class RayClusterError(FairleadError):
    """The private Ray did not start."""

    code = "ray-cluster"


def missing() -> str:
    """Return why no private Ray can be started here, empty when one can."""
    return "" if importlib.util.find_spec("ray") else "Ray is not installed"


@dataclass
class RayCluster:
    """A Ray in a directory of its own; ``start`` it, ``stop`` it."""

    nodes: Sequence[Node] = NODES
    addresses: Mapping[str, str] = field(default_factory=dict)
    """node → where it is, for those that are not to be on loopback addresses"""
    apart: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """nodes elsewhere → what to put before the command that starts their daemons"""
    pids: dict[str, dict[str, list[int]]] = field(default_factory=dict)
    """node → kind of daemon → process numbers"""
    _hosts: dict[tuple[str, ...], "subprocess.Popen[str]"] = field(default_factory=dict)
    """what is put before commands → the process that starts daemons there"""

    def __post_init__(self) -> None:
        # Short, for the names of sockets are in it.
        self.root = Path(tempfile.mkdtemp(prefix="fl-ray-", dir="/tmp"))
        number = os.getpid()
        self._net = f"127.{64 + number // 250 % 128}.{number % 250}"
        with socket.socket() as probe:
            probe.bind((self._ip(HEAD), 0))
            self._port = int(probe.getsockname()[1])

    @property
    def cluster(self) -> Cluster:
        """The nodes as the engine should find them."""
        return Cluster(tuple(self.nodes))

    @property
    def address(self) -> str:
        """Where the head is."""
        return f"{self._ip(HEAD)}:{self._port}"

    @property
    def options(self) -> dict[str, Any]:
        """What the engine must know to find this cluster."""
        return {"address": self.address, "here": self._ip(HEAD)}

    def _ip(self, name: str) -> str:
        number = next(i for i, node in enumerate(self.nodes) if node.id == name)
        return self.addresses.get(name, f"{self._net}.{number + 2}")

    def start(self) -> "RayCluster":
        """Start the head and then all nodes."""
        problem = missing()
        if problem:
            raise RayClusterError(problem)
        for node in sorted(self.nodes, key=lambda node: node.id != HEAD):
            self.start_node(node.id)
        return self

    def _host(self, name: str) -> "subprocess.Popen[str]":
        """Return the process that starts a node's daemons."""
        enter = tuple(self.apart.get(name, ()))
        if enter not in self._hosts:
            with (self.root / "host.log").open("ab") as log:
                self._hosts[enter] = subprocess.Popen(
                    [*enter, sys.executable, "-m", "fairlead.private_clusters.ray_daemons"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    text=True,
                    start_new_session=True,
                    env=self._environment(),
                )
        return self._hosts[enter]

    def _environment(self) -> dict[str, str]:
        return {
            **os.environ,
            # A head that is killed forgets nothing.
            "RAY_gcs_storage": "rocksdb",
            "RAY_gcs_storage_path": str(self.root / "gcs"),
        }

    def stop(self) -> None:
        """End every daemon, and what jobs have left."""
        for name in list(self.pids):
            self.kill_node(name)
        for host in self._hosts.values():
            with host:
                pass
        shutil.rmtree(self.root, ignore_errors=True)

    def start_node(self, name: str) -> None:
        """Start a node, the head with what it knew before."""
        node = next(node for node in self.nodes if node.id == name)
        counts = {kind.upper(): node.devices.count(kind) for kind in node.devices}
        gpus = name in _WITH_GPUS
        asked: dict[str, Any] = {
            "head": name == HEAD,
            "node_name": name,
            "node_ip_address": self._ip(name),
            "num_cpus": 16,
            "num_gpus": len(node.devices) if gpus else 0,
            "resources": dict.fromkeys((f"accelerator_type:{k}" for k in counts), 1)
            if gpus
            else counts,
            "labels": {"rack": node.rack},
            "object_store_memory": _MEMORY,
            "min_worker_port": 0,
            "max_worker_port": 0,
            "dashboard_agent_listen_port": 0,
            "include_log_monitor": False,
        }
        if name == HEAD:
            asked["_system_config"] = _SETTINGS
            asked["gcs_server_port"] = self._port
            asked["temp_dir"] = str(self.root)
            asked["include_dashboard"] = False
            asked["no_monitor"] = True
        else:
            asked["gcs_address"] = self.address
        self.pids[name] = self._ask(asked)["pids"]

    def kill_node(self, name: str) -> None:
        """Let a node die: its Ray and everything that runs there, without a word."""
        daemons = [pid for pids in self.pids.pop(name, {}).values() for pid in pids]
        for pid in [*daemons, *_below(daemons), *_keepers(daemons)]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def kill_daemons(self, name: str) -> None:
        """Kill the Ray of a node only, without a word; what it started must see to itself."""
        for pid in [pid for pids in self.pids.pop(name, {}).values() for pid in pids]:
            os.kill(pid, signal.SIGKILL)

    def restart_without_state(self) -> None:
        """Kill the head and the Ray of all nodes; start them as a cluster that knows nothing."""
        self.kill_node(HEAD)
        for name in list(self.pids):
            self.kill_daemons(name)
        shutil.rmtree(self.root / "gcs")
        for node in sorted(self.nodes, key=lambda node: node.id != HEAD):
            self.start_node(node.id)

    def actors(self, name: str) -> list[int]:
        """Return the process numbers of our supervising actors on a node."""
        found = []
        for pid in _below([self.raylet(name)]):
            with suppress(OSError):
                if Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"ray::Warden"):
                    found.append(pid)
        return found

    def groups(self) -> list[str]:
        """Return the names of placement groups that schedulers hold."""
        return [one["name"] for one in self.ask("groups", "fairlead-")]

    def clear(self) -> None:
        """End what schedulers that will not come back have left, and start nodes that are away."""
        for node in self.nodes:
            if node.id not in self.pids:
                self.start_node(node.id)
        for pid in _keepers([self.raylet(node.id) for node in self.nodes]):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for name in self.groups():
            self.ask("release", name)

    def ask(self, method: str, *arguments: object) -> Any:
        """Return what Ray answers; see ``ray_bridge.RayBridge``."""
        ray = connection(**self.options, log=str(self.root / "bridge.log"))
        ray.wait()
        return ray.submit(method, *arguments).result(_PATIENCE_S)

    def raylet(self, name: str) -> int:
        """Return the process number of a node's Ray."""
        return self.pids[name]["raylet"][0]

    def _ask(self, asked: dict[str, Any]) -> dict[str, Any]:
        host = self._host(asked["node_name"])
        assert host.stdin is not None
        assert host.stdout is not None
        host.stdin.write(json.dumps(asked) + "\n")
        host.stdin.flush()
        line = host.stdout.readline()
        if not line:
            raise RayClusterError((self.root / "host.log").read_text(encoding="utf-8")[-3000:])
        found: dict[str, Any] = json.loads(line)
        return found


def _below(pids: Sequence[int]) -> list[int]:
    """Return the processes that these have started, and those that they have."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(entry.name))
    found: list[int] = []
    waiting = list(pids)
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


def _keepers(raylets: Sequence[int]) -> list[int]:
    """Return the keepers that belong to these, whoever is their parent by now."""
    marks = {f"{RAYLET}={pid}".encode() for pid in raylets}
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                if marks & set((entry / "environ").read_bytes().split(b"\0")):
                    found.append(int(entry.name))
    return found
