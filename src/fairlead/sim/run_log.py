"""Log file of a run: the scheduler's configuration, every event, a digest of the last state."""

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from fairlead.core import Scheduler, encode_event, replay, state_bytes
from fairlead.estimate.learned import stored_learner
from fairlead.mechanisms.base import FluidMechanism
from fairlead.mechanisms.factory import create_mechanism, stored_names
from fairlead.model.cluster import Accelerator, Cluster, Node
from fairlead.model.errors import FairleadError, InputError
from fairlead.model.events import Event
from fairlead.model.speeds.planned import Trials
from fairlead.model.speeds.table import SpeedKey, SpeedTable

VERSION = 1


class EventLog:
    """Writes a log: a header from which a scheduler can be built, then one line per event."""

    def __init__(
        self,
        file: TextIO,
        cluster: Cluster,
        beliefs: SpeedTable,
        *,
        policy: str,
        mechanism: str | None,
        round_s: float | None,
    ) -> None:
        self._file = file
        header: dict[str, Any] = {
            "fairlead_log": VERSION,
            "policy": policy,
            "mechanism": mechanism,
            "round_s": round_s,
            "nodes": [[node.id, node.rack, node.devices] for node in cluster.nodes],
            "memory_gib": {name: a.memory_gib for name, a in cluster.details.items()},
            "speeds": [[*key, speed] for key, speed in beliefs.steps_per_s.items()],
            "assumed": beliefs.assumed,
            "estimates": beliefs.estimates,
        }
        if beliefs.learner is not None:
            header["strengths"] = beliefs.learner.document()
            header["process"] = beliefs.learner.process
            header["quantile"] = beliefs.quantile
            header["explores"] = beliefs.trials is not None
        self._line(json.dumps(header, separators=(",", ":"), allow_nan=False))

    def write(self, event: Event) -> None:
        """Append one event."""
        self._line(encode_event(event))

    def close(self, scheduler: Scheduler[Any]) -> None:
        """End the log with a digest of the scheduler's state."""
        self._line(json.dumps({"state_sha256": digest(scheduler)}))

    def _line(self, text: str) -> None:
        self._file.write(text + "\n")


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """A scheduler rebuilt from a log, with its digest and the logged digest."""

    scheduler: Scheduler[Any]
    events: int
    sha256: str
    logged_sha256: str | None

    @property
    def same(self) -> bool:
        """Whether the rebuilt state equals the last state of the run."""
        return self.sha256 == self.logged_sha256


def replay_file(path: Path) -> ReplayResult:
    """Rebuild the scheduler's state from a log file."""
    try:
        with path.open(encoding="utf-8") as file:
            return _replay(file)
    except OSError as error:
        raise InputError(
            str(error.strerror), fix="expected a readable log file", source=str(path)
        ) from None
    except InputError as error:
        raise error.within(source=str(path)) from None
    except json.JSONDecodeError as error:
        raise InputError(
            f"not an event log: a line is not JSON ({error.msg})",
            fix="expected a file written by fairlead simulate --log",
            source=str(path),
        ) from None
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise InputError(
            f"not an event log ({type(error).__name__}: {str(error)[:80]})",
            fix="expected a file written by fairlead simulate --log",
            source=str(path),
        ) from None


def _replay(lines: Iterator[str]) -> ReplayResult:
    header = json.loads(next(lines, "null"))
    if not isinstance(header, dict) or header.get("fairlead_log") != VERSION:
        raise InputError(
            "not the header of an event log",
            fix=f"expected a log of version {VERSION}, written by fairlead simulate --log",
            line=1,
        )
    scheduler = _scheduler(header)
    logged: list[str] = []
    count = 0

    def events() -> Iterable[str]:
        nonlocal count
        for line in lines:
            if line.startswith('{"state_sha256"'):
                logged.append(json.loads(line)["state_sha256"])
                return
            count += 1
            yield line

    try:
        replay(scheduler, events())
    except FairleadError as error:
        raise InputError(
            f"damaged log: {error}", fix="expected an unchanged log", line=count + 1
        ) from None
    return ReplayResult(scheduler, count, digest(scheduler), logged[0] if logged else None)


def _scheduler(header: dict[str, Any]) -> Scheduler[Any]:
    nodes = tuple(Node(name, tuple(devices), rack) for name, rack, devices in header["nodes"])
    details = {name: Accelerator(name, gib) for name, gib in header["memory_gib"].items()}
    steps_per_s = {SpeedKey(*key): speed for *key, speed in header["speeds"]}
    # Earlier versions did not estimate the speeds that a table lacks.
    estimates = bool(header.get("estimates", False))
    beliefs = SpeedTable(
        steps_per_s,
        assumed=header.get("assumed"),
        estimates=estimates,
        learner=stored_learner(header),
        quantile=header.get("quantile", 0.5),
        trials=Trials() if header.get("explores") else None,
    )
    names = stored_names(header["policy"], header["mechanism"])
    mechanism = create_mechanism(*names, header["round_s"])
    if isinstance(mechanism, FluidMechanism):
        raise InputError(
            "fluid mechanisms have no events", fix="expected the log of a run with rounds", line=1
        )
    return Scheduler(Cluster(nodes, details), beliefs, mechanism)


def digest(scheduler: Scheduler[Any]) -> str:
    """Return the SHA-256 of the scheduler's whole state."""
    return hashlib.sha256(state_bytes(scheduler)).hexdigest()
