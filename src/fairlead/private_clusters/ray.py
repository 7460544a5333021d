"""A private Ray of several nodes on this machine's loopback addresses, for tests and trials.

Each node has its own address and its own raylet, so that nodes and the head can fail and return
one by one. Accelerators exist only in Ray's tables: one node declares GPUs, the others custom
resources.
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
from fairlead.engines.ray.keeper import RAYLET_PID_VARIABLE
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
    # Ray detects a killed raylet in about two seconds.
    "health_check_initial_delay_ms": 0,
    "health_check_period_ms": 500,
    "health_check_failure_threshold": 3,
    # Workers start on demand: memory is scarce with all nodes on one machine.
    "enable_worker_prestart": False,
    "prestart_worker_first_driver": False,
}
_DAEMONS = ("gcs_server", "raylet")
"""programs without which a node does nothing"""
_MEMORY = 100_000_000
_TIMEOUT_S = 90.0


class RayClusterError(FairleadError):
    """The private Ray did not start."""

    code = "ray-cluster"


def missing() -> str:
    """Return the reason why no private Ray can start here, empty if one can."""
    return "" if importlib.util.find_spec("ray") else "Ray is not installed"


@dataclass
class RayCluster:
    """A Ray cluster in a temporary directory, between ``start`` and ``stop``."""

    nodes: Sequence[Node] = NODES
    addresses: Mapping[str, str] = field(default_factory=dict)
    """node → its address, for nodes that are not on loopback addresses"""
    apart: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """nodes in other namespaces → prefix of the command that starts their daemons"""
    silence_s: float = 5.0
    """timeout of a health check; after three, as without CPU, Ray declares a node dead"""
    pids: dict[str, dict[str, list[int]]] = field(default_factory=dict)
    """node → program → process IDs"""
    _hosts: dict[tuple[str, ...], "subprocess.Popen[str]"] = field(default_factory=dict)
    """command prefix → the process that starts daemons there"""

    def __post_init__(self) -> None:
        # Short, because it is part of the names of sockets.
        self.root = Path(tempfile.mkdtemp(prefix="fl-ray-", dir="/tmp"))
        number = os.getpid()
        self._net = f"127.{64 + number // 250 % 128}.{number % 250}"
        with socket.socket() as probe:
            probe.bind((self._ip(HEAD), 0))
            self._port = int(probe.getsockname()[1])

    @property
    def cluster(self) -> Cluster:
        """The nodes that the engine should find."""
        return Cluster(tuple(self.nodes))

    @property
    def address(self) -> str:
        """Address of the head."""
        return f"{self._ip(HEAD)}:{self._port}"

    @property
    def options(self) -> dict[str, Any]:
        """Options of the engine for this cluster."""
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
        """Return the parent process of a node's daemons."""
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
            # A killed head keeps its state.
            "RAY_gcs_storage": "rocksdb",
            "RAY_gcs_storage_path": str(self.root / "gcs"),
        }

    def stop(self) -> None:
        """Kill all daemons and the processes of jobs."""
        for name in list(self.pids):
            self.kill_node(name)
        for host in self._hosts.values():
            with host:
                pass
        shutil.rmtree(self.root, ignore_errors=True)

    def start_node(self, name: str) -> None:
        """Start a node; the head recovers its state."""
        node = next(node for node in self.nodes if node.id == name)
        counts = {name.upper(): node.devices.count(name) for name in node.devices}
        gpus = name in _WITH_GPUS
        request: dict[str, Any] = {
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
            timeout_ms = round(1000 * self.silence_s)
            request["_system_config"] = {**_SETTINGS, "health_check_timeout_ms": timeout_ms}
            request["gcs_server_port"] = self._port
            request["temp_dir"] = str(self.root)
            request["include_dashboard"] = False
            request["no_monitor"] = True
        else:
            request["gcs_address"] = self.address
        self.pids[name] = self._send(request)["pids"]

    def kill_node(self, name: str) -> None:
        """Kill a node's raylet and all processes there, without warning."""
        daemons = [pid for pids in self.pids.pop(name, {}).values() for pid in pids]
        for pid in [*daemons, *_descendants(daemons), *_keepers(daemons)]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def kill_daemons(self, name: str) -> None:
        """Kill only a node's raylet, without warning; its keepers have to notice."""
        for pid in [pid for pids in self.pids.pop(name, {}).values() for pid in pids]:
            os.kill(pid, signal.SIGKILL)

    def restart_without_state(self) -> None:
        """Kill the head and all raylets; start them as a cluster without state."""
        self.kill_node(HEAD)
        for name in list(self.pids):
            self.kill_daemons(name)
        shutil.rmtree(self.root / "gcs")
        for node in sorted(self.nodes, key=lambda node: node.id != HEAD):
            self.start_node(node.id)

    def actors(self, name: str) -> list[int]:
        """Return the process IDs of the node agents on a node."""
        agents = []
        for pid in _descendants([self.raylet(name)]):
            with suppress(OSError):
                if Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"ray::NodeAgent"):
                    agents.append(pid)
        return agents

    def groups(self) -> list[str]:
        """Return the names of the schedulers' placement groups."""
        return [group["name"] for group in self.ask("groups", "fairlead-")]

    def clear(self) -> None:
        """Remove the orphans of earlier schedulers, and start nodes that are down."""
        for node in sorted(self.nodes, key=lambda node: node.id != HEAD):
            if not self.is_up(node.id):
                self.kill_node(node.id)
                self.start_node(node.id)
        for pid in _keepers([self.raylet(node.id) for node in self.nodes]):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for name in self.groups():
            self.ask("release", name)

    def ask(self, method: str, *arguments: object) -> Any:
        """Return Ray's answer to a request; see ``bridge.RayBridge``."""
        ray = connection(**self.options, log=str(self.root / "bridge.log"))
        ray.wait()
        return ray.submit(method, *arguments).result(_TIMEOUT_S)

    def is_up(self, name: str) -> bool:
        """Return whether a node was started and has not died since."""
        daemons = self.pids.get(name, {})
        return bool(daemons) and all(
            _is_alive(pid) for program in _DAEMONS for pid in daemons.get(program, ())
        )

    def raylet(self, name: str) -> int:
        """Return the process ID of a node's raylet."""
        return self.pids[name]["raylet"][0]

    def _send(self, request: dict[str, Any]) -> dict[str, Any]:
        host = self._host(request["node_name"])
        assert host.stdin is not None
        assert host.stdout is not None
        host.stdin.write(json.dumps(request) + "\n")
        host.stdin.flush()
        line = host.stdout.readline()
        if not line:
            raise RayClusterError((self.root / "host.log").read_text(encoding="utf-8")[-3000:])
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise RayClusterError(f"node {request['node_name']} did not start: {answer['error']}")
        return answer


def _is_alive(pid: int) -> bool:
    """Return whether a daemon runs: a dead one is a zombie until its node is started again."""
    state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    return state != "Z"


def _descendants(pids: Sequence[int]) -> list[int]:
    """Return all descendants of processes."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(entry.name))
    descendants: list[int] = []
    waiting = list(pids)
    while waiting:
        below = children.get(waiting.pop(), [])
        descendants += below
        waiting += below
    return descendants


def _keepers(raylets: Sequence[int]) -> list[int]:
    """Return the keepers that node agents of these raylets started, also orphaned ones."""
    marks = {f"{RAYLET_PID_VARIABLE}={pid}".encode() for pid in raylets}
    keepers = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                if marks & set((entry / "environ").read_bytes().split(b"\0")):
                    keepers.append(int(entry.name))
    return keepers
