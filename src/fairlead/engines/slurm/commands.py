"""Slurm's own commands: what they print as values, what we want as their arguments.

Only forms of output that have been stable for years are read: ``scontrol --oneliner`` and formats
that we give ourselves.
"""

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from fairlead.model.errors import FairleadError

_AT_ONCE = 8
_PATIENCE_S = 60.0
_FIELD = re.compile(r"(?:^|\s)([A-Za-z][A-Za-z0-9_]*)=(.*?)(?=\s+[A-Za-z][A-Za-z0-9_]*=|\s*$)")
_GPU = re.compile(r"\bgpu(?::([A-Za-z][^:,()]*))?[:=](\d+)")
_USABLE_STATES = frozenset({"IDLE", "MIXED", "ALLOCATED"})
_OTHER_USER_VARIABLES = (
    "PATH",
    "LANG",
    "LC_ALL",
    "TZ",
    "LD_LIBRARY_PATH",
    "PYTHONPATH",
    "SLURM_CONF",
)
_UNCERTAIN_STATES = frozenset({"NOT_RESPONDING", "NO_RESPOND", "UNKNOWN"})
_FINE = frozenset({"COMPLETING", "CLOUD", "DYNAMIC_NORM", "PLANNED", "POWERED_UP", "POWER_SAVING"})
_RESERVED_STATES = frozenset({"RESERVED", "MAINTENANCE", "MAINT"})


class SlurmError(FairleadError):
    """One of Slurm's commands failed; the message is Slurm's."""

    code = "slurm"


@dataclass(frozen=True, slots=True)
class SlurmNode:
    """A node as Slurm sees it."""

    name: str
    address: str
    devices: tuple[str, ...]
    """the accelerator of each device, in the order of their indices"""
    used: tuple[str, ...]
    """the accelerator of each device that a job of anybody holds"""
    idle_cpus: int | None
    """cores that no job holds; None: Slurm does not say"""
    features: tuple[str, ...]
    partitions: tuple[str, ...]
    states: frozenset[str]

    def standing(self, *, reserved: bool) -> Literal["up", "unsure", "down"]:
        """Tell whether jobs start here, those under a reservation of ours if ``reserved``.

        Slurm is unsure of a node that has not answered it for a moment, and of all nodes when its
        controller has just started.
        """
        rest = self.states - _USABLE_STATES - _FINE - (_RESERVED_STATES if reserved else set())
        if rest - _UNCERTAIN_STATES:
            return "down"
        return "unsure" if rest or not self.states & _USABLE_STATES else "up"


@dataclass(frozen=True, slots=True)
class SlurmJob:
    """A job that waits, runs or is being cleared away."""

    id: str
    name: str
    state: str
    node: str
    devices: tuple[str, ...]
    """the accelerator of each device that it holds or waits for"""
    reason: str


class Slurm:
    """Runs Slurm's commands without holding up the loop."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self._gate = asyncio.Semaphore(_AT_ONCE)

    async def nodes(self) -> list[SlurmNode]:
        """Return all nodes of the cluster."""
        text = await self._run("scontrol", "show", "node", "--oneliner", "--details")
        return [read_node(line) for line in text.splitlines() if line.startswith("NodeName=")]

    async def jobs(self, prefix: str) -> dict[str, SlurmJob]:
        """Return the jobs whose names begin with this, by name."""
        form = "%i|%j|%T|%N|%b|%r"
        text = await self._run("squeue", "--noheader", "--all", f"--format={form}")
        jobs = (read_job(line) for line in text.splitlines() if line)
        return {job.name: job for job in jobs if job.name.startswith(prefix)}

    async def default_partition(self) -> str:
        """Return the partition that jobs get which name none."""
        text = await self._run("scontrol", "show", "partition", "--oneliner")
        for line in text.splitlines():
            found = read_fields(line)
            if found.get("Default") == "YES":
                return found["PartitionName"]
        raise SlurmError("Slurm has no default partition: name one, as in slurm:partition=gpu")

    async def reserved_nodes(self, reservation: str) -> list[str]:
        """Return the nodes of a reservation."""
        text = await self._run("scontrol", "show", "reservation", reservation, "--oneliner")
        return await self.expand(read_fields(text).get("Nodes", ""))

    async def racks(self) -> dict[str, str]:
        """Return node → the switch it hangs on, of nodes for which Slurm knows one."""
        try:
            text = await self._run("scontrol", "show", "topology", "--oneliner")
        except SlurmError:  # it knows of no topology
            return {}
        racks: dict[str, str] = {}
        for line in text.splitlines():
            found = read_fields(line)
            if found.get("Level") == "0" and found.get("Nodes"):
                for node in await self.expand(found["Nodes"]):
                    racks[node] = found["SwitchName"]
        return racks

    async def expand(self, nodes: str) -> list[str]:
        """Return the names that a list such as n[1-3] stands for."""
        if not nodes or nodes == "(null)":
            return []
        if "[" not in nodes:
            return nodes.split(",")
        return (await self._run("scontrol", "show", "hostnames", nodes)).split()

    async def submit(self, script: str, options: Sequence[str]) -> str:
        """Submit a script; return the job's number."""
        text = await self._run("sbatch", "--parsable", *options, given=script)
        return text.strip().partition(";")[0]

    async def cancel(self, name: str) -> None:
        """End the job of this name, whatever its state."""
        await self._run("scancel", "--quiet", f"--name={name}")

    async def cancel_waiting(self, name: str) -> None:
        """End the job of this name if it has not started yet."""
        await self._run("scancel", "--quiet", "--state=PENDING", f"--name={name}")

    async def signal(self, name: str) -> None:
        """Send the script of a running job SIGTERM."""
        await self._run(
            "scancel", "--quiet", "--batch", "--signal=TERM", "--state=RUNNING", f"--name={name}"
        )

    async def _run(self, *command: str, given: str = "") -> str:
        async with self._gate:
            try:
                process = await asyncio.create_subprocess_exec(
                    *command,
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=asyncio.subprocess.PIPE,
                    env=self._environment,
                )
            except FileNotFoundError:
                raise SlurmError(
                    f"there is no {command[0]} here: install Slurm's client"
                ) from None
            try:
                async with asyncio.timeout(_PATIENCE_S):
                    out, err = await process.communicate(given.encode())
            except (TimeoutError, asyncio.CancelledError) as error:
                if process.returncode is None:
                    process.kill()
                    await process.wait()
                if isinstance(error, asyncio.CancelledError):
                    raise
                raise SlurmError(f"{command[0]} did not answer in {_PATIENCE_S:g} s") from None
        if process.returncode != 0:
            said = err.decode(errors="replace").strip() or f"status {process.returncode}"
            raise SlurmError(f"{command[0]}: {said}")
        return out.decode(errors="replace")


def read_fields(line: str) -> dict[str, str]:
    """Return the fields of a line; free text comes last in it and cannot hide those before."""
    found: dict[str, str] = {}
    for key, value in _FIELD.findall(line):
        found.setdefault(key, value.strip())
    return found


def read_node(line: str) -> SlurmNode:
    """Return the node of one line of ``scontrol show node``."""
    found = read_fields(line)
    states = set()
    for state in found.get("State", "UNKNOWN").split("+"):
        states.add(state.rstrip("*~#!%$@^-"))
        if "*" in state:
            states.add("NOT_RESPONDING")
    cpus = [found.get(name, "") for name in ("CPUTot", "CPUAlloc")]
    return SlurmNode(
        name=found["NodeName"],
        address=found.get("NodeAddr", found["NodeName"]),
        devices=_accelerators(found.get("Gres", "")),
        used=_accelerators(found.get("GresUsed", "")),
        idle_cpus=int(cpus[0]) - int(cpus[1]) if all(map(str.isdigit, cpus)) else None,
        features=_listed(found.get("ActiveFeatures", "")),
        partitions=_listed(found.get("Partitions", "")),
        states=frozenset(states),
    )


def read_job(line: str) -> SlurmJob:
    """Return the job of one line in our format; only the reason may hold the separator."""
    number, name, state, node, gres, reason = line.split("|", 5)
    return SlurmJob(number, name, state, node, _accelerators(gres), reason)


def _accelerators(gres: str) -> tuple[str, ...]:
    """Return the accelerator of each device of a list such as gpu:v100:2,gpu:k80:1."""
    counts = _GPU.findall(gres)
    return tuple(kind or "gpu" for kind, count in counts for _ in range(int(count)))


def _listed(text: str) -> tuple[str, ...]:
    return tuple(part for part in text.split(",") if part and part != "(null)")


def environment_of(server: Mapping[str, str], *, for_others: bool) -> dict[str, str]:
    """Return what commands, and so the jobs they submit, find in their environment.

    Not what Slurm's commands would take for options (the scheduler may itself run as a Slurm
    job), nor the scheduler's own settings, which may hold passwords. Jobs of other users find
    what they need to start and no more.
    """
    if for_others:
        return {name: server[name] for name in _OTHER_USER_VARIABLES if name in server}
    ours = ("FAIRLEAD_", "SLURM_", "SBATCH_", "SQUEUE_", "SCANCEL_", "SALLOC_", "SINFO_")
    return {
        name: value
        for name, value in server.items()
        if name == "SLURM_CONF" or not name.startswith(ours)
    }
