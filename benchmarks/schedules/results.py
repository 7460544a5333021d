"""Performs simulations in several processes and keeps their outcomes in a file."""

import hashlib
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict
from pathlib import Path

from benchmarks.schedules.runs import Outcome, Run, perform

import fairlead

Outcomes = dict[Run, Outcome]


def outcomes_of(
    runs: Sequence[Run],
    report: Callable[[Run, Outcomes], None],
    *,
    jobs: int = 1,
    keep: Path | None = None,
) -> Outcomes:
    """Return run → outcome; those that the file ``keep`` holds already are not performed again.

    ``report`` is called after every simulation.
    """
    kept = {} if keep is None else _kept(keep)
    outcomes = {run: kept[run.name] for run in runs if run.name in kept}
    for run, outcome in _performed([run for run in runs if run not in outcomes], jobs):
        outcomes[run] = outcome
        if keep is not None:
            with keep.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"run": run.name, **asdict(outcome)}) + "\n")
        report(run, outcomes)
    return outcomes


def _performed(runs: Iterable[Run], jobs: int) -> Iterator[tuple[Run, Outcome]]:
    if jobs == 1:
        for run in runs:
            yield run, perform(run)
        return
    with ProcessPoolExecutor(jobs) as pool:
        run_of = {pool.submit(perform, run): run for run in runs}
        for done in as_completed(run_of):
            yield run_of[done], done.result()


def _kept(path: Path) -> dict[str, Outcome]:
    """Return name of run → outcome in the file, which is begun if it does not exist."""
    version = _version()
    if not path.exists():
        path.write_text(json.dumps({"version": version}) + "\n", encoding="utf-8")
        return {}
    # A run that was stopped may have left half a line.
    whole, _, _ = path.read_text(encoding="utf-8").rpartition("\n")
    path.write_text(whole + "\n", encoding="utf-8")
    head, *lines = map(json.loads, whole.split("\n"))
    if head != {"version": version}:
        sys.exit(f"--keep: {path} holds results of another version: expected a new file")
    return {line.pop("run"): Outcome(**line) for line in lines}


def _version() -> str:
    """Return a digest of the code that the outcomes depend on."""
    digest = hashlib.sha256()
    for root in (Path(fairlead.__file__).parent, Path(__file__).parent):
        for path in sorted(root.rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()
