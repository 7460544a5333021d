"""Runs of a comparison in parallel processes."""

import multiprocessing
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from typing import Generic, TypeVar

from fairlead.model.errors import FairleadError

ComparisonT = TypeVar("ComparisonT")
RunT = TypeVar("RunT")
OutcomeT = TypeVar("OutcomeT")


class RunError(FairleadError):
    """A failed run of a comparison; the message names the run and the reason."""

    code = "run"


def run_all(
    simulate: Callable[[ComparisonT, RunT], OutcomeT],
    comparison: ComparisonT,
    runs: Sequence[RunT],
    *,
    workers: int,
    on_done: Callable[[], None],
) -> list[OutcomeT]:
    """Return the outcome of every run, in their order.

    The result does not depend on the number of workers. The first failed run ends the comparison.
    """
    run_one = _NamedRun(simulate, comparison)
    if workers <= 1 or len(runs) == 1:
        outcomes = []
        for run in runs:
            outcomes.append(run_one(run))
            on_done()
        return outcomes
    # Spawned, not forked: a fork would copy the locks of the solver's and rich's threads.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(workers, len(runs)), context, _exit_on_interrupt) as pool:
        pending = [pool.submit(run_one, run) for run in runs]
        try:
            _wait(pending, on_done)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
        return [future.result() for future in pending]


class _NamedRun(Generic[ComparisonT, RunT, OutcomeT]):
    """Simulates a run; errors name it."""

    def __init__(
        self, simulate: Callable[[ComparisonT, RunT], OutcomeT], comparison: ComparisonT
    ) -> None:
        self._simulate, self._comparison = simulate, comparison

    def __call__(self, run: RunT) -> OutcomeT:
        try:
            return self._simulate(self._comparison, run)
        except FairleadError as error:
            # Errors with extra attributes cannot be unpickled from another process.
            raise RunError(f"{run}: {error} ({error.code})") from None


def _exit_on_interrupt() -> None:
    """Make Ctrl-C end a worker at once and silently; the parent reports the interruption."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _wait(pending: Sequence["Future[OutcomeT]"], on_done: Callable[[], None]) -> None:
    try:
        for future in as_completed(pending):
            future.result()
            on_done()
    except BrokenProcessPool:
        raise RunError(
            "a worker process died, possibly out of memory; use fewer --workers"
        ) from None
