"""Deterministic fault simulation of the live system on virtual time.

The driver, the local engine, keepers, the job library and its checkpoints are production code; the
clock, threads, processes, signals, disk, network and store are simulated. A seed determines every
fault. ``python -m tests.faults.run --seed 7`` replays one run.
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
from tests.faults.world import FaultWorld

from fairlead.sim.gc_tuning import infrequent_gc


@dataclass(frozen=True)
class Result:
    """Outcome of one run."""

    seed: int
    violation: str | None
    """first violated invariant, None if all held"""
    events: int
    virtual_s: float
    trace: Sequence[tuple[Any, ...]] = ()

    @property
    def command(self) -> str:
        """The command that replays this run."""
        return f"python -m tests.faults.run --seed {self.seed}"


def run(seed: int, *, real_store: bool | None = None) -> Result:
    """Run one seed to its end or to the first violation.

    A few seeds use the real store on SQLite, all others one in memory; ``real_store`` overrides
    the choice.
    """
    shared = Path("/dev/shm")
    home = tempfile.mkdtemp(prefix="fairlead-", dir=shared if shared.is_dir() else None)
    plan = scenario(seed)
    if real_store is not None:
        plan.real_store = real_store
    world = FaultWorld(plan, Path(home))
    try:
        with _on_one_core(), infrequent_gc():
            world.run()
    finally:
        shutil.rmtree(home, ignore_errors=True)
    checks = world.checks
    return Result(seed, checks.violation, checks.events, world.loop.time(), checks.trace)


@contextmanager
def _on_one_core() -> Iterator[None]:
    """Pin the process to one core: only one thread runs at a time, and core switches are slow."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[os.getpid() % len(cores)]})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


def main(arguments: Sequence[str] | None = None) -> int:
    """Replay one seed and print its trace; exit with 1 after a violation."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.run")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--quiet", action="store_true", help="print the outcome only")
    options = parser.parse_args(arguments)
    plan, result = scenario(options.seed), run(options.seed)
    out = sys.stdout
    if not options.quiet:
        out.write(f"{plan}\n")
        for at, event, *commands in result.trace:
            out.write(f"{at:16.3f} {_short(event)}\n")
            out.writelines(f"{'':20}{_short(command)}\n" for command in commands)
    outcome = result.violation or "all invariants held"
    out.write(
        f"seed {options.seed}: {result.events} events in {result.virtual_s:.1f} s: {outcome}\n"
    )
    return 0 if result.violation is None else 1


def _short(value: object) -> str:
    text = " ".join(str(value).split())
    return text if len(text) < 200 else text[:197] + "…"


if __name__ == "__main__":
    sys.exit(main())
