"""A lease on Slurm: a part for each node, in directories that scheduler and nodes share.

```
leases/<lease>/order.json   what was ordered            parts      how many there are
               exit.json    what became of it, once all parts have ended
               over         keepers need not hold its devices any more
               <part>/      what a keeper's directory holds, and beat, here.json, stop, carrying
```
"""

import os
import shutil
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from fairlead.engines.base import Ended, LeaseOutcome, Order
from fairlead.engines.keeper import lease_dir
from fairlead.engines.shared import multi_node as parts
from fairlead.engines.shared.multi_node import saved_steps, split
from fairlead.job import checkpoint


@dataclass(frozen=True, slots=True)
class PartFiles:
    """What the files of a part say."""

    ended: Ended | None
    has_started: bool
    carries: bool
    beat: int | None


@dataclass(slots=True)
class Part:
    """What one node does for a lease, and what was last seen of it."""

    directory: Path
    name: str
    """of the Slurm job"""
    order: Order
    ended: Ended | None = None
    has_started: bool = False
    carries: bool = False
    """members have ended, and what they saved is on its way to the data directory"""
    beat: int | None = None
    """when the keeper last showed life, by the clock of whoever keeps the files"""
    heartbeat_seen_at: float | None = None
    """when we last saw that change, by our own clock; None: it never began"""
    runs_since: float | None = None
    """when Slurm first said, to us, that it runs"""

    @property
    def node(self) -> str:
        """Where it runs."""
        return self.order.devices[0][0]

    def read(self) -> PartFiles | None:
        """Return what its files say, None once it has ended; changes nothing."""
        if self.ended is not None:
            return None
        return PartFiles(
            lease_dir.read_ended(self.directory),
            self.has_started or (self.directory / "members.json").exists(),
            (self.directory / "carrying").exists(),
            _mtime_ns(self.directory / "beat"),
        )

    def note(self, seen: PartFiles | None, now: float, age_s: Callable[[int], float]) -> None:
        """Take in what its files say; ``age_s`` tells how old a beat that we did not see is."""
        if seen is None or self.ended is not None:
            return
        self.ended = seen.ended
        self.has_started = seen.has_started
        self.carries = seen.carries
        if seen.beat is not None and seen.beat != self.beat:
            self.heartbeat_seen_at = now - (age_s(seen.beat) if self.beat is None else 0.0)
            self.beat = seen.beat

    def last_output_line(self) -> str:
        """Return the last line that its keeper, or Slurm in its place, has printed."""
        try:
            lines = (self.directory / "keeper.log").read_text(errors="replace").split("\n")
        except OSError:
            return ""
        return next((line.strip()[:200] for line in reversed(lines) if line.strip()), "")

    def quiet_s(self, now: float) -> float:
        """Return for how long nothing was heard of a keeper that should be there."""
        last = [at for at in (self.heartbeat_seen_at, self.runs_since) if at is not None]
        return now - max(last) if last else 0.0


@dataclass(slots=True)
class Watched:
    """A lease whose end has not been told yet."""

    order: Order
    directory: Path
    parts: list[Part]
    since: float
    """when it was submitted or found, by our own clock"""
    submitted: bool = False
    fresh: bool = True
    """submitted by us, not by a scheduler before us"""
    ours: bool = True
    """False for one that nobody wants: its end is not told"""
    has_started: bool = False
    steps: float = -1.0
    """last reported, of jobs without the library"""
    stop_at: float | None = None
    """when it was told to stop"""

    @property
    def lease(self) -> int:
        """Its number."""
        return self.order.lease

    def printed_steps(self) -> float | None:
        """Return how far the job says it is, None if it says nothing."""
        if self.order.progress_pattern is None:
            return None
        found = [lease_dir.read_json(part.directory / "progress.json") for part in self.parts]
        return max((float(one["steps"]) for one in found if one is not None), default=None)

    def tell_to_stop(self, grace_s: float) -> None:
        """Leave word for the keepers to stop their members."""
        for part in self.parts:
            if part.ended is None:
                lease_dir.write_json(part.directory / "stop", {"grace_s": grace_s})

    def give_up(self, part: Part, ending: LeaseOutcome, why: str) -> None:
        """End a part of which nothing is heard; nobody can run it or write for it any more."""
        order = self.order
        with suppress(checkpoint.FencedError):  # a later lease of the job has begun
            checkpoint.raise_fence(order.checkpoint_dir, order.lease + 1)
        # If its keeper lives after all, out of our reach, the lock is its own; then the fence
        # alone keeps it from doing harm.
        held = lease_dir.hold(part.directory)
        ended = lease_dir.read_ended(part.directory)
        part.ended = ended or Ended(order.lease, ending, saved_steps(order), why)
        if ended is None:
            lease_dir.write_ended(part.directory, part.ended)
        if held is not None:
            held.close()

    def end(self) -> Ended | None:
        """Return and write down how the lease ended; None while a part has not."""
        return parts.end(self.directory, self.order, [part.ended for part in self.parts])


def write(directory: Path, order: Order, name: str, address: Mapping[str, str]) -> list[Part]:
    """Leave the parts of an order for their keepers; ``address`` says how nodes are reached."""
    orders = split(order)
    if len(orders) > 1:
        host = address.get(orders[0].devices[0][0], orders[0].devices[0][0])
        orders = [replace(one, meets_at=f"{host}:0") for one in orders]
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    (directory / "parts").write_text(str(len(orders)), encoding="ascii")
    for number, one in enumerate(orders):
        lease_dir.write_order(directory / str(number), one)
    lease_dir.write_order(directory, order)
    return read(directory, order, name)


def read(directory: Path, order: Order, name: str) -> list[Part]:
    """Return the parts that were left."""
    return [
        Part(directory / str(number), f"{name}.{number}", one)
        for number, one in enumerate(split(order))
    ]


def listed(root: Path) -> list[Path]:
    """Return the directories of leases; what a removal has left is removed."""
    for path in root.glob(".[0-9]*"):
        shutil.rmtree(path, ignore_errors=True)
    found = (path for path in root.iterdir() if path.name.isdigit())
    return sorted(path for path in found if (path / "order.json").exists())


def let_go(root: Path, leases: Collection[int]) -> None:
    """Leave word that the devices of leases that have ended need not be held any more."""
    for lease in leases:
        with suppress(OSError):  # keepers do not wait for long
            (root / str(lease) / "over").touch()


def remove(directory: Path) -> bool:
    """Remove the directory of a lease that has ended, unless a keeper still lives there."""
    if not directory.exists():
        return True
    if any(lease_dir.is_alive(part) for part in directory.glob("[0-9]*")):
        return False
    # Under another name first: a keeper that begins meanwhile finds all of it or nothing.
    aside = directory.with_name(f".{directory.name}")
    directory.rename(aside)
    shutil.rmtree(aside, ignore_errors=True)
    return True


def file_server_time_ns(path: Path) -> int:
    """Return the time by the clock of whoever keeps the files, in nanoseconds."""
    path.touch()
    os.utime(path)
    return path.stat().st_mtime_ns


def _mtime_ns(path: Path) -> int | None:
    """Return when a file was last changed; it is opened, for a network file system's sake."""
    try:
        with path.open("rb") as file:
            return os.fstat(file.fileno()).st_mtime_ns
    except FileNotFoundError:
        return None
