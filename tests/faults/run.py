"""Deterministic fault simulation: the live system on virtual time, where everything goes wrong.

The driver, the local engine, keepers, the job library and its checkpoints are our own code; the
clock, threads, processes, signals, disk, network and store are simulated. A seed decides all that
happens. ``python -m tests.faults.run --seed 7`` replays one.
"""

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.faults.scenario import scenario
from tests.faults.world import World

from fairlead.sim.gc_tuning import infrequent_gc


@dataclass(frozen=True)
class Result:
    """How a run went."""

    seed: int
    violation: str | None
    """the first promise that was broken, None if all were kept"""
    events: int
    virtual_s: float
    trace: Sequence[tuple[Any, ...]] = ()

    @property
    def command(self) -> str:
        """What replays this run."""
        return f"python -m tests.faults.run --seed {self.seed}"


def run(seed: int, *, real_store: bool | None = None) -> Result:
    """Run one seed to its end, or to the first promise that is broken.

    A few seeds use the real store on SQLite, all others one in memory; ``real_store`` decides
    for this one.
    """
    shared = Path("/dev/shm")
    home = tempfile.mkdtemp(prefix="fairlead-", dir=shared if shared.is_dir() else None)
    plan = scenario(seed)
    if real_store is not None:
        plan.real_store = real_store
    world = World(plan, Path(home))
    try:
        with _on_one_core(), infrequent_gc():
            world.run()
    finally:
        shutil.rmtree(home, ignore_errors=True)
    checks = world.checks
    return Result(seed, checks.violation, checks.events, world.loop.time(), checks.trace)


@contextmanager
def _on_one_core() -> Iterator[None]:
    """Keep to one core: threads take turns, and to wake another core for each costs the most."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[os.getpid() % len(cores)]})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


def main(arguments: Sequence[str] | None = None) -> int:
    """Replay one seed and show what happened; exit with 1 when a promise was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.run")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--quiet", action="store_true", help="show the outcome only")
    given = parser.parse_args(arguments)
    plan, result = scenario(given.seed), run(given.seed)
    out = sys.stdout
    if not given.quiet:
        out.write(f"{plan}\n")
        for at, event, *commands in result.trace:
            out.write(f"{at:16.3f} {_short(event)}\n")
            out.writelines(f"{'':20}{_short(command)}\n" for command in commands)
    outcome = result.violation or "all promises were kept"
    out.write(
        f"seed {given.seed}: {result.events} events in {result.virtual_s:.1f} s: {outcome}\n"
    )
    return 0 if result.violation is None else 1


def _short(value: object) -> str:
    text = " ".join(str(value).split())
    return text if len(text) < 200 else text[:197] + "…"


if __name__ == "__main__":
    sys.exit(main())
