"""Seeded fuzzer of everything that a tenant can write: files, job files, requests.

``python -m tests.attacks.fuzz.run --seed 7 --cases 2000`` runs the cases of one seed;
``--only files:12`` repeats one of them.
"""

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from random import Random

from tests.attacks.fuzz.files import TARGETS, hostile_file
from tests.attacks.fuzz.job_files import read_hostile_job_file
from tests.attacks.fuzz.live_attack import LiveAttack
from tests.attacks.hostile import within

from fairlead.job.checkpoint import FencedError

Case = Callable[[Random], None]
_SHARES = {"files": 0.5, "job files": 0.25, "requests": 0.25}
"""kind → fraction of the cases"""
_CASES_PER_HOSTILE_JOB = 100
_LIMIT_S = 20.0
"""seconds in which each case ends"""


class FuzzError(AssertionError):
    """A case failed; the message tells how to repeat it."""


def fuzz(seed: int, cases: int, only: str | None = None) -> int:
    """Run the cases of a seed; return their number, or raise FuzzError for the first failure."""
    count = 0
    with tempfile.TemporaryDirectory(prefix="fairlead-fuzz-") as folder:
        root = Path(folder)
        for kind, share in _SHARES.items():
            numbers = range(max(round(cases * share), 1))
            if only is not None:
                wanted, _, chosen = only.partition(":")
                numbers = range(int(chosen), int(chosen) + 1) if wanted == kind else range(0)
            if kind == "requests":
                count += _attack_server(root / "server", seed, numbers)
            else:
                case = read_hostile_job_file if kind == "job files" else _file_case(root / "files")
                for number in numbers:
                    _run(kind, seed, number, case)
                    count += 1
    return count


def _run(kind: str, seed: int, number: int, case: Case) -> None:
    rng = Random(f"{seed}:{kind}:{number}")
    try:
        within(lambda: case(rng), _LIMIT_S)
    except Exception as error:
        repeat = f"--seed {seed} --only '{kind}:{number}'"
        raise FuzzError(
            f"{type(error).__name__}: {error}\n"
            f"repeat with: python -m tests.attacks.fuzz.run {repeat}"
        ) from error


def _file_case(directory: Path) -> Case:
    """Return the case that fills a directory with hostile files and reads them."""

    def case(rng: Random) -> None:
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        target = TARGETS[rng.choice(tuple(TARGETS))]
        for name in target.files:
            if rng.random() < 0.6:
                hostile_file(rng, directory / name)
        for call in rng.sample(target.calls, min(len(target.calls), 3)):
            with suppress(OSError, FencedError):  # the failure of the job that owns the files
                call(directory)

    return case


def _attack_server(root: Path, seed: int, numbers: range) -> int:
    """Send hostile requests while hostile jobs run; other tenants' jobs make all their steps."""
    if not numbers:
        return 0
    root.mkdir()
    attack = LiveAttack(root)
    try:
        before = attack.submit_victim()
        for number in numbers:
            if number % _CASES_PER_HOSTILE_JOB == 0:
                attack.submit_hostile_job(f"{seed}:{number}")
            _run("requests", seed, number, attack.send)
        after = attack.submit_victim()
        attack.check_victim(before)
        attack.check_victim(after)
        attack.check_end()
    finally:
        attack.close()
    return len(numbers)


def _seeds(arguments: argparse.Namespace) -> Iterator[int]:
    yield from range(arguments.seed, arguments.seed + arguments.seeds)


def main() -> int:
    """Run the fuzzer from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=1, help="number of seeds, from --seed on")
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--only", help="one case, such as files:12")
    arguments = parser.parse_args()
    for seed in _seeds(arguments):
        began = time.monotonic()
        try:
            count = fuzz(seed, arguments.cases, arguments.only)
        except FuzzError as error:
            sys.stderr.write(f"seed {seed}: {error}\n")
            return 1
        sys.stdout.write(f"seed {seed}: {count} cases in {time.monotonic() - began:.0f} s\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
