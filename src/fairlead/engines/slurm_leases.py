"""A lease on Slurm: a part for each node, in directories that scheduler and nodes share.

```
leases/<lease>/order.json   what was ordered            parts      how many there are
               exit.json    what became of it, once all parts have ended
               <part>/      what a keeper's directory holds, and beat, here.json, stop
```
"""

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from fairlead.engines import lease_dir
from fairlead.engines.base import Ended, Ending, Order
from fairlead.job import checkpoint

_WORST_FIRST: tuple[Ending, ...] = ("refused", "lost", "failed", "left", "finished")


@dataclass(frozen=True, slots=True)
class Seen:
    """What the files of a part say."""

    ended: Ended | None
    has_started: bool
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
    beat: int | None = None
    """when the keeper last showed life, by the clock of whoever keeps the files"""
    beat_seen_at: float | None = None
    """when we last saw that change, by our own clock; None: it never began"""
    runs_since: float | None = None
    """when Slurm first said, to us, that it runs"""

    @property
    def node(self) -> str:
        """Where it runs."""
        return self.order.devices[0][0]

    def read(self) -> Seen | None:
        """Return what its files say, None once it has ended; changes nothing."""
        if self.ended is not None:
            return None
        return Seen(
            lease_dir.read_ended(self.directory),
            self.has_started or (self.directory / "members.json").exists(),
            _changed_at(self.directory / "beat"),
        )

    def note(self, seen: Seen | None, now: float) -> None:
        """Take in what its files say."""
        if seen is None or self.ended is not None:
            return
        self.ended = seen.ended
        self.has_started = seen.has_started
        if seen.beat is not None and seen.beat != self.beat:
            self.beat, self.beat_seen_at = seen.beat, now

    def quiet_s(self, now: float) -> float:
        """Return for how long nothing was heard of a keeper that should be there."""
        last = [at for at in (self.beat_seen_at, self.runs_since) if at is not None]
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

    def give_up(self, part: Part, ending: Ending, why: str) -> None:
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
        found = [part.ended for part in self.parts if part.ended is not None]
        if len(found) < len(self.parts):
            return None
        ended = together(self.order, found)
        lease_dir.write_ended(self.directory, ended)
        return ended


def together(order: Order, parts: list[Ended]) -> Ended:
    """Return the end of a lease whose parts have ended like this."""
    if len(parts) == 1:
        return parts[0]
    steps = max((one.steps for one in parts if one.steps is not None), default=None)
    ending = min((one.ending for one in parts), key=_WORST_FIRST.index)
    if ending == "left" and any(one.ending == "finished" for one in parts):
        done = order.total_steps is not None and (steps or 0.0) >= order.total_steps
        ending = "finished" if done else "left"
    # Who failed first may have nothing to say; those who were stopped for it say why.
    said = sorted((one for one in parts if one.message), key=lambda one: one.ending != ending)
    codes = tuple(code for one in parts for code in one.exit_codes)
    return Ended(order.lease, ending, steps, said[0].message if said else "", codes)


def split(order: Order) -> list[Order]:
    """Return an order for each node; ranks run through the nodes one after the other."""
    nodes = dict.fromkeys(node for node, _ in order.devices)
    kind = dict(zip(order.devices, order.accelerators, strict=True))
    made: list[Order] = []
    rank = 0
    for node in nodes:
        # By number, as Slurm lists what it gives: so each member's accelerator is the right one.
        mine = tuple(sorted(device for device in order.devices if device[0] == node))
        made.append(
            replace(
                order,
                devices=mine,
                accelerators=tuple(kind[device] for device in mine),
                first_rank=rank,
                world_size=len(order.devices),
            )
        )
        rank += len(mine)
    return made


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


def saved_steps(order: Order) -> float | None:
    """Return the steps of the checkpoint in force."""
    found = checkpoint.latest(order.checkpoint_dir)
    return None if found is None else float(found.steps)


def _changed_at(path: Path) -> int | None:
    """Return when a file was last changed; it is opened, for a network file system's sake."""
    try:
        with path.open("rb") as file:
            return os.fstat(file.fileno()).st_mtime_ns
    except FileNotFoundError:
        return None
