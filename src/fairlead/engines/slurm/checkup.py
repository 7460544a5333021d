"""Checks of a Slurm cluster for the Slurm engine: from this machine to each node."""

import asyncio
import os
import re
import shlex
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Iterator, Mapping, Sequence, Sized
from contextlib import suppress
from pathlib import Path
from typing import Any

from fairlead.engines.plugin import Site
from fairlead.engines.shared.checkup.findings import Finding
from fairlead.engines.shared.checkup.nodes import check_nodes
from fairlead.engines.shared.checkup.tenant_access import check_installation
from fairlead.engines.slurm.commands import SlurmError, slurm_environment
from fairlead.engines.slurm.engine import SlurmEngine
from fairlead.model.cluster import Cluster
from fairlead.model.errors import FairleadError

_COMMANDS = ("sbatch", "scancel", "squeue", "scontrol", "sinfo")
_MIN_VERSION = (20, 11)
_CONFIGURATION = ("/etc/slurm/slurm.conf", "/etc/slurm-llnl/slurm.conf")
_TIMEOUT_S = 20.0


def check_slurm(site: Site, options: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield the findings; stop at the first that makes later checks pointless."""
    missing = [name for name in _COMMANDS if shutil.which(name) is None]
    if missing:
        fix = "install Slurm's client (Debian: slurm-client) of the cluster's version"
        yield Finding("Slurm", "wrong", f"not installed: {', '.join(missing)}", fix)
        return
    problem = _check_configuration()
    if problem is not None:
        yield problem
        return
    try:
        yield _controller()
        configuration = _run("scontrol", "show", "config")
    except FairleadError as error:
        yield _unreachable(str(error))
        return
    yield from _settings(site, configuration)
    # The engine persists its nodes; the temporary directory keeps them out of the server's data.
    with tempfile.TemporaryDirectory(prefix="fairlead-doctor-") as aside:
        engine = SlurmEngine(data=Path(aside), **options)
        try:
            cluster = asyncio.run(engine.inventory())
        except FairleadError as error:
            fix = "set partition= or reservation= (see `sinfo`, `scontrol show reservation`)"
            yield Finding("devices", "wrong", str(error), fix)
            return
    up, findings = _nodes(cluster)
    yield from findings
    permission = _check_permission(engine)
    yield permission
    if engine.users:
        yield from check_installation()
    if permission.level != "wrong" and up:
        yield from check_nodes(site, up, _Probes(engine), engine.node_dir)


def _check_configuration() -> Finding | None:
    """Return a finding if Slurm's configuration file is missing."""
    path = os.environ.get("SLURM_CONF")
    if path:
        if Path(path).is_file():
            return None
        problem = f"SLURM_CONF names {path}, which does not exist"
        return Finding("Slurm", "wrong", problem, "correct it, or unset it to use the system's")
    if any(Path(path).is_file() for path in _CONFIGURATION) or os.environ.get("SLURM_CONF_SERVER"):
        return None
    if shutil.which("sackd") or Path("/run/slurm/conf").exists():  # fetched from the controller
        return None
    fix = "copy the cluster's slurm.conf to /etc/slurm, or set SLURM_CONF"
    return Finding("Slurm", "wrong", "no slurm.conf on this machine", fix)


def _controller() -> Finding:
    version = _run("scontrol", "--version").strip()
    number = re.search(r"(\d+)\.(\d+)", version)
    answer = _run("scontrol", "ping").strip().splitlines()
    if not any(re.search(r"\bUP\b", line) for line in answer):
        raise SlurmError(answer[0] if answer else "no controller answers")
    if number is not None and (int(number[1]), int(number[2])) < _MIN_VERSION:
        fix = "upgrade to Slurm 20.11 or later, the versions that Fairlead is tested with"
        return Finding("Slurm", "warning", f"{version} is old", fix)
    return Finding("Slurm", "ok", f"{version}; {answer[0]}")


def _unreachable(error: str) -> Finding:
    text = error.lower()
    if "munge" in text or "authentication" in text or "credential" in text:
        fix = "start munged here, with the cluster's /etc/munge/munge.key and its clock"
        return Finding("Slurm", "wrong", f"munge does not work: {_short(error)}", fix)
    fix = "start slurmctld, or correct SlurmctldHost in slurm.conf; see `scontrol ping`"
    return Finding("Slurm", "wrong", f"the controller does not answer: {_short(error)}", fix)


def _settings(site: Site, configuration: str) -> Iterator[Finding]:
    """Yield findings about Slurm's settings that cost time or devices."""
    settings = {}
    for line in configuration.splitlines():
        name, _, value = line.partition("=")
        settings[name.strip()] = value.strip()
    if "batch_sched_delay=0" not in settings.get("SchedulerParameters", ""):
        problem = "Slurm may delay submitted scripts by three seconds"
        fix = "SchedulerParameters=batch_sched_delay=0 in slurm.conf"
        yield Finding("Slurm's settings", "warning", problem, fix)
    if settings.get("Epilog", "(null)") in ("", "(null)"):
        problem = "a job may wait a second for the devices of its predecessor"
        fix = "Epilog=/bin/true in slurm.conf: Slurm starts waiting jobs when an epilog ends"
        yield Finding("Slurm's settings", "warning", problem, fix)
    by_memory = "MEMORY" in settings.get("SelectTypeParameters", "").upper()
    if by_memory and "memory-per-device-gib" not in site.engine:
        problem = "Slurm counts memory, and gives a whole node's to a job that requests none"
        fix = f"--engine {site.engine}{',' if ':' in site.engine else ':'}"
        yield Finding("Slurm's settings", "wrong", problem, fix + "memory-per-device-gib=16")


def _count(nodes: Sized) -> str:
    return "1 node" if len(nodes) == 1 else f"{len(nodes)} nodes"


def _nodes(cluster: Cluster) -> tuple[list[str], list[Finding]]:
    """Return the nodes that are up, and the findings about devices and nodes."""
    counts = cluster.count_by_name()
    devices = ", ".join(f"{count} {accelerator}" for accelerator, count in counts.items())
    findings = [Finding("devices", "ok", f"{devices} on {_count(cluster.nodes)}")]
    known = {node.id for node in cluster.nodes}
    text = _run("sinfo", "--noheader", "--Node", "--format=%N|%T|%E")
    states = {}
    for line in text.splitlines():
        name, state, reason = line.split("|", 2)
        if name in known:
            states[name] = (state.rstrip("*~#!%$@^-"), reason)
    up = [name for name, (state, _) in states.items() if state in ("idle", "mixed", "allocated")]
    down = [name for name in known if name not in up]
    if down:
        first = min(down)
        state, reason = states.get(first, ("gone", "Slurm does not list it"))
        problem = f"{len(down)} of {len(known)} nodes start no jobs; {first} is {state}: {reason}"
        fix = f"repair it, then scontrol update NodeName={first} State=RESUME"
        findings.append(Finding("nodes", "warning" if up else "wrong", problem, fix))
    return sorted(up), findings


def _check_permission(engine: SlurmEngine) -> Finding:
    """Return whether Slurm would accept our jobs; none is submitted."""
    if engine.users and os.geteuid() != 0:
        problem = "`users` submits as the tenants' users, which needs root"
        return Finding("permission", "wrong", problem, "run the server as root, or omit `users`")
    try:
        _run("sbatch", "--test-only", "--ntasks=1", *_options(engine), "--wrap=true")
    except SlurmError as error:
        problem = f"Slurm rejects jobs of this user: {_short(str(error))}"
        fix = "set partition=, account= or qos= (see `sacctmgr show assoc user=$USER`)"
        return Finding("permission", "wrong", problem, fix)
    return Finding("permission", "ok", "Slurm accepts jobs of this user")


def _options(engine: SlurmEngine) -> list[str]:
    names = ("partition", "reservation", "account", "qos")
    return [f"--{name}={getattr(engine, name)}" for name in names if getattr(engine, name)]


class _Probes:
    """Runs a probe on each node as a short Slurm job."""

    def __init__(self, engine: SlurmEngine) -> None:
        self._engine = engine
        self._name = f"fairlead-doctor-{uuid.uuid4().hex[:8]}"

    def start(self, directory: Path, nodes: Sequence[str]) -> Mapping[str, str]:
        """Submit a probe to each node; return node → error where Slurm rejected it."""
        failed = {}
        for node in nodes:
            probe = [
                self._engine.python,
                "-m",
                "fairlead.engines.shared.checkup.probe",
                str(directory),
                node,
            ]
            options = [f"--job-name={self._name}", f"--nodelist={node}", "--nodes=1", "--ntasks=1"]
            options += [f"--output={directory / node}.log", "--chdir=/", "--time=1", "--mem=64M"]
            options += [*_options(self._engine), f"--wrap=exec {shlex.join(probe)}"]
            try:
                _run("sbatch", "--parsable", *options)
            except SlurmError as error:
                failed[node] = _short(str(error))
        return failed

    def run(self) -> bool:
        """Return whether any probe is still pending or running."""
        states = "PENDING,RUNNING,CONFIGURING"
        return bool(_run("squeue", "--noheader", f"--name={self._name}", f"--states={states}"))

    def end(self) -> None:
        """Cancel the probes that are still pending or running."""
        with suppress(SlurmError):
            _run("scancel", "--quiet", f"--name={self._name}")


def _run(*command: str) -> str:
    """Return the output of a Slurm command."""
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
            env=slurm_environment(os.environ, for_others=False),
        )
    except subprocess.TimeoutExpired:
        raise SlurmError(f"{command[0]}: no answer within {_TIMEOUT_S:g} s") from None
    if done.returncode:
        raise SlurmError((done.stderr or done.stdout).strip() or f"{command[0]} failed")
    return done.stdout


def _short(error: str) -> str:
    """Return the first line of a Slurm error, without the command's name."""
    lines = [line for line in error.splitlines() if line.strip()]
    return re.sub(r"^(\w+: )?(error|fatal): ", "", lines[0]) if lines else error
