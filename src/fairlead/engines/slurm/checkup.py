"""Whether a Slurm cluster is fit for the Slurm engine: from here to what its nodes see."""

import asyncio
import os
import re
import shlex
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from fairlead.engines.plugin import Site
from fairlead.engines.shared.checkup.findings import Finding
from fairlead.engines.shared.checkup.nodes import check_nodes
from fairlead.engines.slurm.commands import SlurmError, environment_of
from fairlead.engines.slurm.engine import SlurmEngine
from fairlead.model.cluster import Cluster
from fairlead.model.errors import FairleadError

_COMMANDS = ("sbatch", "scancel", "squeue", "scontrol", "sinfo")
_OLDEST = (20, 11)
_CONFIGURATION = ("/etc/slurm/slurm.conf", "/etc/slurm-llnl/slurm.conf")
_PATIENCE_S = 20.0


def check_slurm(site: Site, options: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield a finding for each thing; stop at the first that makes the next ones meaningless."""
    missing = [name for name in _COMMANDS if shutil.which(name) is None]
    if missing:
        fix = "install Slurm's client (Debian: slurm-client) of the cluster's version"
        yield Finding("Slurm", "wrong", f"there is no {', '.join(missing)} here", fix)
        return
    problem = _no_configuration()
    if problem is not None:
        yield problem
        return
    try:
        yield _controller()
        configuration = _ask("scontrol", "show", "config")
    except FairleadError as error:
        yield _unreachable(str(error))
        return
    yield from _settings(site, configuration)
    # What an engine finds it remembers: in a directory that goes away again.
    with tempfile.TemporaryDirectory(prefix="fairlead-doctor-") as aside:
        engine = SlurmEngine(data=Path(aside), **options)
        try:
            cluster = asyncio.run(engine.inventory())
        except FairleadError as error:
            fix = "give partition= or reservation= as `sinfo` and `scontrol show reservation` say"
            yield Finding("devices", "wrong", str(error), fix)
            return
    up, findings = _nodes(cluster)
    yield from findings
    may = _may_submit(engine)
    yield may
    if may.level != "wrong" and up:
        yield from check_nodes(site, up, _Probes(engine), engine.node_dir)


def _no_configuration() -> Finding | None:
    """Return what is wrong with the path of Slurm's configuration, None if it is there."""
    given = os.environ.get("SLURM_CONF")
    if given:
        if Path(given).is_file():
            return None
        said = f"SLURM_CONF names {given}, which is not there"
        return Finding("Slurm", "wrong", said, "correct it, or unset it to use the system's")
    if any(Path(path).is_file() for path in _CONFIGURATION) or os.environ.get("SLURM_CONF_SERVER"):
        return None
    if shutil.which("sackd") or Path("/run/slurm/conf").exists():  # it gets it from the controller
        return None
    fix = "copy the cluster's slurm.conf to /etc/slurm, or set SLURM_CONF"
    return Finding("Slurm", "wrong", "there is no slurm.conf on this machine", fix)


def _controller() -> Finding:
    version = _ask("scontrol", "--version").strip()
    found = re.search(r"(\d+)\.(\d+)", version)
    said = _ask("scontrol", "ping").strip().splitlines()
    if not any(re.search(r"\bUP\b", line) for line in said):
        raise SlurmError(said[0] if said else "no controller answers")
    if found is not None and (int(found[1]), int(found[2])) < _OLDEST:
        fix = "a Slurm from 20.11 on is what Fairlead is tested with"
        return Finding("Slurm", "warning", f"{version} is old", fix)
    return Finding("Slurm", "ok", f"{version}; {said[0]}")


def _unreachable(said: str) -> Finding:
    if "munge" in said.lower() or "authentication" in said.lower() or "credential" in said.lower():
        fix = "start munged here, with the cluster's /etc/munge/munge.key and its clock"
        return Finding("Slurm", "wrong", f"munge does not work: {_short(said)}", fix)
    fix = "start slurmctld, or correct SlurmctldHost in slurm.conf; see `scontrol ping`"
    return Finding("Slurm", "wrong", f"the controller does not answer: {_short(said)}", fix)


def _settings(site: Site, configuration: str) -> Iterator[Finding]:
    """Yield what in Slurm's settings costs something."""
    found = {}
    for line in configuration.splitlines():
        name, _, value = line.partition("=")
        found[name.strip()] = value.strip()
    if "batch_sched_delay=0" not in found.get("SchedulerParameters", ""):
        said = "a submitted script may wait three seconds before Slurm looks at it"
        fix = "SchedulerParameters=batch_sched_delay=0 in slurm.conf"
        yield Finding("Slurm's settings", "warning", said, fix)
    if found.get("Epilog", "(null)") in ("", "(null)"):
        said = "a job that follows another on its devices may wait a second"
        fix = "Epilog=/bin/true in slurm.conf: when an epilog ends Slurm starts what waits"
        yield Finding("Slurm's settings", "warning", said, fix)
    by_memory = "MEMORY" in found.get("SelectTypeParameters", "").upper()
    if by_memory and "memory-per-device-gib" not in site.engine:
        said = "Slurm counts memory, and a job that asks for none gets all of its node's"
        fix = f"--engine {site.engine}{',' if ':' in site.engine else ':'}"
        yield Finding("Slurm's settings", "wrong", said, fix + "memory-per-device-gib=16")


def _nodes(cluster: Cluster) -> tuple[list[str], list[Finding]]:
    """Return the nodes that take jobs now, and what there is to say of devices and nodes."""
    counts = cluster.count_by_name()
    said = ", ".join(f"{count} {kind}" for kind, count in counts.items())
    findings = [Finding("devices", "ok", f"{said} on {len(cluster.nodes)} nodes")]
    known = {node.id for node in cluster.nodes}
    text = _ask("sinfo", "--noheader", "--Node", "--format=%N|%T|%E")
    states = {}
    for line in text.splitlines():
        name, state, reason = line.split("|", 2)
        if name in known:
            states[name] = (state.rstrip("*~#!%$@^-"), reason)
    up = [name for name, (state, _) in states.items() if state in ("idle", "mixed", "allocated")]
    away = [name for name in known if name not in up]
    if away:
        first = min(away)
        state, reason = states.get(first, ("gone", "Slurm does not list it"))
        said = f"{len(away)} of {len(known)} nodes take no jobs; {first} is {state}: {reason}"
        fix = f"scontrol update NodeName={first} State=RESUME, once it is well"
        findings.append(Finding("nodes", "warning" if up else "wrong", said, fix))
    return sorted(up), findings


def _may_submit(engine: SlurmEngine) -> Finding:
    """Return whether Slurm would take a job of ours; none is submitted."""
    if engine.users and os.geteuid() != 0:
        said = "`users` submits as tenants' users, which only root may"
        return Finding("permission", "wrong", said, "run the server as root, or leave it out")
    try:
        _ask("sbatch", "--test-only", "--ntasks=1", *_options(engine), "--wrap=true")
    except SlurmError as error:
        said = f"Slurm takes no jobs of this user: {_short(str(error))}"
        fix = "give partition=, account= or qos= as `sacctmgr show assoc user=$USER` says"
        return Finding("permission", "wrong", said, fix)
    return Finding("permission", "ok", "Slurm takes jobs of this user")


def _options(engine: SlurmEngine) -> list[str]:
    names = ("partition", "reservation", "account", "qos")
    return [f"--{name}={getattr(engine, name)}" for name in names if getattr(engine, name)]


class _Probes:
    """Probes as jobs of a second, one for each node."""

    def __init__(self, engine: SlurmEngine) -> None:
        self._engine = engine
        self._name = f"fairlead-doctor-{uuid.uuid4().hex[:8]}"

    def start(self, directory: Path, nodes: Sequence[str]) -> Mapping[str, str]:
        """Submit a probe to each node; return the nodes where Slurm refused it, with its words."""
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
                _ask("sbatch", "--parsable", *options)
            except SlurmError as error:
                failed[node] = _short(str(error))
        return failed

    def run(self) -> bool:
        """Tell whether any of them still waits or runs."""
        states = "PENDING,RUNNING,CONFIGURING"
        return bool(_ask("squeue", "--noheader", f"--name={self._name}", f"--states={states}"))

    def end(self) -> None:
        """End those that still wait or run."""
        with suppress(SlurmError):
            _ask("scancel", "--quiet", f"--name={self._name}")


def _ask(*command: str) -> str:
    """Return what one of Slurm's commands prints."""
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=_PATIENCE_S,
            check=False,
            env=environment_of(os.environ, for_others=False),
        )
    except subprocess.TimeoutExpired:
        raise SlurmError(f"{command[0]} did not answer in {_PATIENCE_S:g} s") from None
    if done.returncode:
        raise SlurmError((done.stderr or done.stdout).strip() or f"{command[0]} failed")
    return done.stdout


def _short(said: str) -> str:
    """Return the first line of what Slurm says, without who says it."""
    lines = [line for line in said.splitlines() if line.strip()]
    return re.sub(r"^(\w+: )?(error|fatal): ", "", lines[0]) if lines else said
