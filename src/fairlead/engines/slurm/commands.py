"""Slurm's commands: their arguments, and their output as values.

Only output formats that have been stable for years are parsed: ``scontrol --oneliner`` and formats
that the command line sets explicitly.
"""

import asyncio
import re
import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from fairlead.engines.keeper.environment import INHERITED, select
from fairlead.model.errors import FairleadError

_MAX_CONCURRENT = 8
_TIMEOUT_S = 60.0
_JOB_SEPARATORS = 6
"""separators in a line about a job"""
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
)
_UNCERTAIN_STATES = frozenset({"NOT_RESPONDING", "NO_RESPOND", "UNKNOWN"})
_HEALTHY_STATES = frozenset(
    {"COMPLETING", "CLOUD", "DYNAMIC_NORM", "PLANNED", "POWERED_UP", "POWER_SAVING"}
)
_RESERVED_STATES = frozenset({"RESERVED", "MAINTENANCE", "MAINT"})


class SlurmError(FairleadError):
    """A Slurm command failed; the message is Slurm's."""

    code = "slurm"


@dataclass(frozen=True, slots=True)
class SlurmNode:
    """A node as Slurm lists it."""

    name: str
    address: str
    devices: tuple[str, ...]
    """accelerator of each device, in the order of their indices"""
    used: tuple[str, ...]
    """accelerator of each device that any user's job holds"""
    idle_cpus: int | None
    """cores that no job holds; None if Slurm does not list them"""
    features: tuple[str, ...]
    partitions: tuple[str, ...]
    states: frozenset[str]

    def availability(self, *, reserved: bool) -> Literal["up", "unsure", "down"]:
        """Return whether jobs start here; ``reserved``: under a reservation of this engine.

        Slurm is unsure of a node that has just stopped answering, and of all nodes right after
        the start of its controller.
        """
        usable = _USABLE_STATES | _HEALTHY_STATES | (_RESERVED_STATES if reserved else set())
        rest = self.states - usable
        if rest - _UNCERTAIN_STATES:
            return "down"
        return "unsure" if rest or not self.states & _USABLE_STATES else "up"


@dataclass(frozen=True, slots=True)
class SlurmJob:
    """A job in Slurm's queue: pending, running or completing."""

    id: str
    name: str
    state: str
    node: str
    devices: tuple[str, ...]
    """accelerator of each device that it holds or waits for"""
    user: int
    """Unix user ID of its owner"""
    reason: str


class Slurm:
    """Runs Slurm's commands without blocking the event loop."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self._gate = asyncio.Semaphore(_MAX_CONCURRENT)

    async def nodes(self) -> list[SlurmNode]:
        """Return all nodes of the cluster."""
        text = await self._run("scontrol", "show", "node", "--oneliner", "--details")
        return [read_node(line) for line in text.splitlines() if line.startswith("NodeName=")]

    async def jobs(self, prefix: str) -> list[SlurmJob]:
        """Return the jobs whose names start with a prefix, of all users.

        Names are chosen by users and may contain anything, lines that look like those of other
        jobs included. So the separator is one that no user can guess.
        """
        separator = f"|{secrets.token_hex(8)}|"
        form = separator.join(("%i", "%j", "%T", "%N", "%b", "%U", "%r"))
        text = await self._run("squeue", "--noheader", "--all", f"--format={form}")
        lines = [line for line in text.split("\n") if line.count(separator) == _JOB_SEPARATORS]
        jobs = [read_job(line, separator) for line in lines]
        return [job for job in jobs if job.name.startswith(prefix)]

    async def default_partition(self) -> str:
        """Return the name of Slurm's default partition."""
        text = await self._run("scontrol", "show", "partition", "--oneliner")
        for line in text.splitlines():
            fields = read_fields(line)
            if fields.get("Default") == "YES":
                return fields["PartitionName"]
        raise SlurmError("no default partition: name one, as in slurm:partition=gpu")

    async def reserved_nodes(self, reservation: str) -> list[str]:
        """Return the nodes of a reservation."""
        text = await self._run("scontrol", "show", "reservation", reservation, "--oneliner")
        return await self.expand(read_fields(text).get("Nodes", ""))

    async def racks(self) -> dict[str, str]:
        """Return node → its leaf switch, for nodes in Slurm's topology."""
        try:
            text = await self._run("scontrol", "show", "topology", "--oneliner")
        except SlurmError:  # no topology is configured
            return {}
        racks: dict[str, str] = {}
        for line in text.splitlines():
            fields = read_fields(line)
            if fields.get("Level") == "0" and fields.get("Nodes"):
                for node in await self.expand(fields["Nodes"]):
                    racks[node] = fields["SwitchName"]
        return racks

    async def expand(self, nodes: str) -> list[str]:
        """Return the names in a list such as n[1-3]."""
        if not nodes or nodes == "(null)":
            return []
        if "[" not in nodes:
            return nodes.split(",")
        return (await self._run("scontrol", "show", "hostnames", nodes)).split()

    async def submit(self, script: str, options: Sequence[str]) -> str:
        """Submit a script; return the ID of the job."""
        text = await self._run("sbatch", "--parsable", *options, stdin=script)
        return text.strip().partition(";")[0]

    async def cancel(self, name: str) -> None:
        """Cancel the job with a name, in any state."""
        await self._run("scancel", "--quiet", f"--name={name}")

    async def cancel_ids(self, ids: Collection[str]) -> None:
        """Cancel jobs by their IDs: other users may have chosen their names."""
        if ids:
            await self._run("scancel", "--quiet", *sorted(ids))

    async def cancel_waiting(self, name: str) -> None:
        """Cancel the job with a name if it is still pending."""
        await self._run("scancel", "--quiet", "--state=PENDING", f"--name={name}")

    async def signal(self, name: str) -> None:
        """Send SIGTERM to the script of a running job."""
        await self._run(
            "scancel", "--quiet", "--batch", "--signal=TERM", "--state=RUNNING", f"--name={name}"
        )

    async def _run(self, *command: str, stdin: str = "") -> str:
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
                raise SlurmError(f"{command[0]}: not installed: install Slurm's client") from None
            try:
                async with asyncio.timeout(_TIMEOUT_S):
                    out, err = await process.communicate(stdin.encode())
            except (TimeoutError, asyncio.CancelledError) as error:
                if process.returncode is None:
                    process.kill()
                    await process.wait()
                if isinstance(error, asyncio.CancelledError):
                    raise
                raise SlurmError(f"{command[0]}: no answer within {_TIMEOUT_S:g} s") from None
        if process.returncode != 0:
            problem = err.decode(errors="replace").strip() or f"status {process.returncode}"
            raise SlurmError(f"{command[0]}: {problem}")
        return out.decode(errors="replace")


def read_fields(line: str) -> dict[str, str]:
    """Return the fields of a line; the first value counts, so free text at the end is harmless."""
    fields: dict[str, str] = {}
    for key, value in _FIELD.findall(line):
        fields.setdefault(key, value.strip())
    return fields


def read_node(line: str) -> SlurmNode:
    """Parse one line of ``scontrol show node``."""
    fields = read_fields(line)
    states = set()
    for state in fields.get("State", "UNKNOWN").split("+"):
        states.add(state.rstrip("*~#!%$@^-"))
        if "*" in state:
            states.add("NOT_RESPONDING")
    cpus = [fields.get(name, "") for name in ("CPUTot", "CPUAlloc")]
    return SlurmNode(
        name=fields["NodeName"],
        address=fields.get("NodeAddr", fields["NodeName"]),
        devices=_accelerators(fields.get("Gres", "")),
        used=_accelerators(fields.get("GresUsed", "")),
        idle_cpus=int(cpus[0]) - int(cpus[1]) if all(map(str.isdigit, cpus)) else None,
        features=_listed(fields.get("ActiveFeatures", "")),
        partitions=_listed(fields.get("Partitions", "")),
        states=frozenset(states),
    )


def read_job(line: str, separator: str) -> SlurmJob:
    """Parse one line in our ``squeue`` format."""
    number, name, state, node, gres, user, reason = line.split(separator)
    return SlurmJob(number, name, state, node, _accelerators(gres), int(user), reason)


def _accelerators(gres: str) -> tuple[str, ...]:
    """Return the accelerator of each device in a list such as gpu:v100:2,gpu:k80:1."""
    counts = _GPU.findall(gres)
    return tuple(name or "gpu" for name, count in counts for _ in range(int(count)))


def _listed(text: str) -> tuple[str, ...]:
    return tuple(part for part in text.split(",") if part and part != "(null)")


def slurm_environment(
    server: Mapping[str, str], *, for_others: bool, more: Collection[str] = ()
) -> dict[str, str]:
    """Return the environment of Slurm's commands, and so of the jobs that they submit.

    It lacks variables that Slurm's commands read as options (the scheduler may itself run in a
    Slurm job) and all that may contain passwords. Jobs of other users get only the variables that
    they need to start. ``more`` names variables that all jobs get, NAME or PREFIX_*.
    """
    usual = _OTHER_USER_VARIABLES if for_others else INHERITED
    return select(server, (*usual, "SLURM_CONF", *more))
