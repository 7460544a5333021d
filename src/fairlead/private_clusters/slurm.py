"""A private Slurm of several nodes on this machine's loopback address, for tests and trials.

It has one controller, one daemon per node and its own munge key, so that it does not interfere
with an installed Slurm. GPUs are device nodes made for this cluster: Slurm allocates real indices
and sets CUDA_VISIBLE_DEVICES as on a real cluster. Making device nodes needs root.
"""

import ctypes
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from fairlead.model.cluster import Cluster, Node
from fairlead.model.errors import FairleadError

NODES = (
    Node("n1", ("v100", "v100"), "r1"),
    Node("n2", ("v100", "v100"), "r1"),
    Node("n3", ("p100", "p100"), "r2"),
    Node("n4", ("k80", "k80", "k80", "k80"), "r2"),
)
_DAEMONS = ("munged", "slurmctld", "slurmd", "sbatch", "scontrol", "squeue")
_SBIN = "/usr/sbin:/sbin"
_MAJOR = 195
"""major number of NVIDIA's device nodes"""
_TIMEOUT_S = 30.0
_LIBC = ctypes.CDLL(None)
_SIGNAL_ON_PARENT_DEATH = 1  # PR_SET_PDEATHSIG


class ClusterError(FairleadError):
    """The private Slurm did not start."""

    code = "slurm-cluster"


def missing() -> str:
    """Return the reason why no private Slurm can start here, empty if one can."""
    absent = [name for name in _DAEMONS if _path(name) is None]
    if absent:
        return f"Slurm is not installed: {', '.join(absent)} missing"
    if os.geteuid() != 0:
        return "a private Slurm needs root, to make device nodes"
    return ""


@dataclass
class SlurmCluster:
    """A Slurm cluster in a directory, between ``start`` and ``stop``."""

    root: Path
    nodes: Sequence[Node] = NODES
    settings: Mapping[str, str] = field(default_factory=dict)
    """lines of slurm.conf that replace the default ones"""
    address: str = "127.0.0.1"
    apart: Mapping[str, tuple[str, Sequence[str]]] = field(default_factory=dict)
    """nodes in other namespaces → address, and prefix of the command that starts the daemon"""
    patience_s: float = _TIMEOUT_S
    """seconds until all nodes must be idle"""
    _daemons: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _ports: dict[str, int] = field(default_factory=dict)
    """daemon → its port"""

    @property
    def cluster(self) -> Cluster:
        """The nodes that the engine should find."""
        return Cluster(tuple(sorted(self.nodes, key=lambda node: node.id)))

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables of Slurm's commands for this cluster."""
        return {"SLURM_CONF": str(self.root / "slurm.conf")}

    def start(self) -> "SlurmCluster":
        """Start all daemons and wait until every node is idle."""
        problem = missing()
        if problem:
            raise ClusterError(problem)
        self._write()
        self._start_munge()
        self._start("slurmctld", "slurmctld", "-D", "-c", "-f", str(self.root / "slurm.conf"))
        for node in self.nodes:
            self.start_node(node.id)
        self.wait_idle()
        return self

    def stop(self) -> None:
        """Stop all daemons and kill the processes of jobs."""
        if "slurmctld" in self._daemons:
            with suppress(subprocess.SubprocessError, FileNotFoundError):
                self.run("scancel", "--user", "root", timeout_s=10.0)
        for name in sorted(self._daemons, key=lambda name: name == "munged"):
            self._end(name, signal.SIGTERM)
        self._kill_steps([node.id for node in self.nodes])

    def start_node(self, name: str) -> None:
        """Start a node's daemon."""
        _, enter = self.apart.get(name, (self.address, ()))
        conf = str(self.root / "slurm.conf")
        self._start(name, "slurmd", "-D", "-N", name, "-f", conf, enter=enter)

    def kill_node(self, name: str) -> None:
        """Kill a node's daemon and all processes there, without warning."""
        self._end(name, signal.SIGKILL)
        self._kill_steps([name])

    def kill_daemon(self, name: str) -> None:
        """Kill one daemon (``slurmctld``, ``munged`` or a node's); jobs continue to run."""
        self._end(name, signal.SIGKILL)

    def start_controller(self) -> None:
        """Restart the controller with its saved jobs."""
        self._start("slurmctld", "slurmctld", "-D", "-f", str(self.root / "slurm.conf"))

    def set_nodes(self, nodes: Sequence[Node]) -> None:
        """Replace the nodes as a site does: a new configuration, and restarted daemons.

        Jobs on nodes that stay continue to run.
        """
        for name in ("slurmctld", *(node.id for node in self.nodes)):
            self._end(name, signal.SIGTERM)
        self.nodes = nodes
        self._write()
        self.start_controller()
        for node in nodes:
            self.start_node(node.id)

    def run(self, *command: str, timeout_s: float = _TIMEOUT_S) -> str:
        """Return the output of a Slurm command."""
        done = subprocess.run(
            command,
            env={**_plain_environment(), **self.environment},
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        if done.returncode != 0:
            raise ClusterError(f"{' '.join(command)}: {done.stderr.strip()}")
        return done.stdout

    def wait_idle(self) -> None:
        """Wait until all nodes are idle."""
        until = time.monotonic() + self.patience_s
        while time.monotonic() < until:
            with suppress(ClusterError):
                states = self.run("sinfo", "--noheader", "--Node", "--format=%N %T").split()[1::2]
                if len(states) == len(self.nodes) and set(states) == {"idle"}:
                    return
            time.sleep(0.1)
        raise ClusterError(f"nodes are not idle after {self.patience_s:g} s; see {self.root}/log")

    def clear(self) -> None:
        """Start the daemons that have died, cancel all jobs and wait until all nodes are idle."""
        starts = {"munged": self._start_munge, "slurmctld": self.start_controller}
        starts |= {node.id: partial(self.start_node, node.id) for node in self.nodes}
        for name, start in starts.items():
            if name not in self._daemons or self._daemons[name].poll() is not None:
                start()
        with suppress(ClusterError, subprocess.SubprocessError):
            self.run("scancel", "--user=root")
        self.wait_idle()

    # -- configuration --------------------------------------------------------------------------

    def _write(self) -> None:
        self.root.mkdir(parents=True, exist_ok=True)
        self.root.chmod(0o755)
        for name in ("state", "spool", "log", "dev"):
            (self.root / name).mkdir(exist_ok=True)
        (self.root / "munge").mkdir(exist_ok=True, mode=0o755)
        daemons = ["slurmctld", *(node.id for node in self.nodes)]
        new = [name for name in daemons if name not in self._ports]
        self._ports |= zip(new, _free_ports(len(new)), strict=True)
        host = socket.gethostname().split(".")[0]
        lines = [f"{key}={value}" for key, value in {**self._conf(host), **self.settings}.items()]
        gres: list[str] = []
        for number, node in enumerate(self.nodes):
            lines.append(self._node_line(node, host))
            gres += self._gres_lines(node, number)
        names = ",".join(node.id for node in self.nodes)
        lines.append(f"PartitionName=gpu Nodes={names} Default=YES MaxTime=INFINITE State=UP")
        (self.root / "slurm.conf").write_text("\n".join(lines) + "\n", encoding="ascii")
        (self.root / "gres.conf").write_text("\n".join(gres) + "\n", encoding="ascii")
        racks = sorted({node.rack for node in self.nodes})
        switches = [
            f"SwitchName={rack} Nodes=" + ",".join(n.id for n in self.nodes if n.rack == rack)
            for rack in racks
        ]
        switches.append(f"SwitchName=top Switches={','.join(racks)}")
        (self.root / "topology.conf").write_text("\n".join(switches) + "\n", encoding="ascii")

    def _conf(self, host: str) -> dict[str, str]:
        root = self.root
        return {
            "ClusterName": "fairlead-private",
            "SlurmctldHost": f"{host}({self.address})",
            "SlurmctldPort": str(self._ports["slurmctld"]),
            "SlurmUser": "root",
            "AuthType": "auth/munge",
            "AuthInfo": f"socket={root}/munge/socket",
            "StateSaveLocation": f"{root}/state",
            "SlurmdSpoolDir": f"{root}/spool/%n",
            "SlurmctldPidFile": f"{root}/slurmctld.pid",
            "SlurmdPidFile": f"{root}/%n.pid",
            "SlurmctldLogFile": f"{root}/log/slurmctld",
            "SlurmdLogFile": f"{root}/log/%n",
            "ProctrackType": "proctrack/linuxproc",
            "TaskPlugin": "task/none",
            "SelectType": "select/cons_tres",
            "SelectTypeParameters": "CR_Core",
            "SlurmdParameters": "config_overrides",
            "TopologyPlugin": "topology/tree",
            "GresTypes": "gpu",
            # Without this Slurm may delay a submitted script by three seconds.
            "SchedulerParameters": "batch_sched_delay=0,sched_min_interval=1000",
            # When an epilog ends, Slurm starts the jobs that wait for its job's devices.
            "Epilog": shutil.which("true") or "/bin/true",
            "ReturnToService": "2",
            "MpiDefault": "none",
            "SlurmdTimeout": "10",
            "KillWait": "5",
            "MinJobAge": "10",
        }

    def _node_line(self, node: Node, host: str) -> str:
        counts = {name: node.devices.count(name) for name in dict.fromkeys(node.devices)}
        gres = ",".join(f"gpu:{name}:{count}" for name, count in counts.items())
        address, _ = self.apart.get(node.id, (self.address, ()))
        return (
            f"NodeName={node.id} NodeHostname={host} NodeAddr={address}"
            f" Port={self._ports[node.id]} CPUs=64 RealMemory=1024 Gres={gres}"
            f" Feature={','.join(counts)},rack-{node.rack}"
        )

    def _gres_lines(self, node: Node, number: int) -> list[str]:
        lines = []
        for index, accelerator in enumerate(node.devices):
            path = self.root / "dev" / f"{node.id}-{index}"
            if not path.exists():
                os.mknod(path, 0o666 | 0o020000, os.makedev(_MAJOR, 16 * number + index))
            lines.append(f"NodeName={node.id} Name=gpu Type={accelerator} File={path}")
        return lines

    # -- daemons --------------------------------------------------------------------------------

    def _start_munge(self) -> None:
        munge = self.root / "munge"
        key = munge / "key"
        if not key.exists():
            key.touch(mode=0o600)
            key.write_bytes(os.urandom(128))
        self._start(
            "munged",
            "munged",
            "--foreground",
            "--force",
            *(f"--key-file={key}", f"--socket={munge}/socket", f"--pid-file={munge}/pid"),
            *(f"--log-file={munge}/log", f"--seed-file={munge}/seed", "--num-threads=2"),
        )
        until = time.monotonic() + _TIMEOUT_S
        while not (munge / "socket").exists():
            if time.monotonic() > until:
                raise ClusterError(f"munged did not start; see {self.root}/log/munged.out")
            time.sleep(0.02)

    def _start(self, name: str, program: str, *arguments: str, enter: Sequence[str] = ()) -> None:
        path = _path(program)
        assert path is not None
        with (self.root / "log" / f"{name}.out").open("ab") as log:
            self._daemons[name] = subprocess.Popen(
                [*enter, path, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=_plain_environment(),
                start_new_session=True,
                preexec_fn=_die_with_parent,  # noqa: PLW1509  # only one system call
            )

    def _end(self, name: str, number: int) -> None:
        daemon = self._daemons.pop(name, None)
        if daemon is None:
            return
        daemon.send_signal(number)
        try:
            daemon.wait(3.0)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait()

    def _kill_steps(self, nodes: Sequence[str]) -> None:
        """Kill the processes of jobs on nodes, found by their Slurm environment."""
        conf = f"SLURM_CONF={self.root / 'slurm.conf'}".encode()
        names = {f"SLURMD_NODENAME={name}".encode() for name in nodes}
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            with suppress(OSError):
                variables = set((entry / "environ").read_bytes().split(b"\0"))
                step = _is_step(entry, self.root, nodes)
                if step or (conf in variables and names & variables):
                    os.kill(int(entry.name), signal.SIGKILL)


def _is_step(entry: Path, root: Path, nodes: Sequence[str]) -> bool:
    """Return whether a process is the slurmstepd of a job on one of these nodes."""
    name = (entry / "cmdline").read_bytes()
    if not name.startswith(b"slurmstepd"):
        return False
    held = {os.readlink(link) for link in (entry / "fd").iterdir()}
    return any(path.startswith(f"{root}/spool/{node}") for path in held for node in nodes)


def _die_with_parent() -> None:
    """Ask the kernel to kill this process when its parent dies, so that no daemon is left."""
    _LIBC.prctl(_SIGNAL_ON_PARENT_DEATH, signal.SIGKILL)


def _path(program: str) -> str | None:
    return shutil.which(program, path=f"{os.environ.get('PATH', '')}:{_SBIN}")


def _plain_environment() -> dict[str, str]:
    """Return an environment without variables of any other Slurm."""
    return {
        "PATH": f"{os.environ.get('PATH', '/usr/bin:/bin')}:{_SBIN}",
        "LANG": "C.UTF-8",
        "HOME": os.environ.get("HOME", "/"),
    }


def _free_ports(count: int) -> list[int]:
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]
    finally:
        for probe in probes:
            probe.close()
