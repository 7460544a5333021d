"""Controller of a search: submits trials, reads their metrics, follows the strategy."""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from fairlead.client import Client, ServerError, UnreachableError, job_path
from fairlead.model.errors import InputError
from fairlead.model.submission.bounds import MIN_WEIGHT
from fairlead.model.submission.new_job import NewJob
from fairlead.model.submission.placeholders import fill, require_use, require_values
from fairlead.model.submission.search import MAX_TRIALS, Search
from fairlead.submitted_job import SubmittedJob
from fairlead.tuning.journal import Journal, Trial
from fairlead.tuning.samplers import perturbed_point, points
from fairlead.tuning.strategies import create_strategy
from fairlead.tuning.strategies.base import LearningCurve

POLL_S = 1.0
_MAX_SHOWN = 256
"""characters of a hyperparameter's value that the server shows"""
_PATIENCE_S = 600.0
"""time for which the server may be unreachable"""


@dataclass(frozen=True, slots=True)
class SearchResult:
    """Trials of a search so far, and the reason for its end."""

    search: Search
    trials: Sequence[Trial]
    reason: str
    """``all trials have ended``, ``target reached`` or ``budget used``"""
    device_hours: float

    @property
    def best(self) -> Trial | None:
        """The trial with the best value; None if no trial has reported the metric."""
        reported = [trial for trial in self.trials if trial.best is not None]
        return max(reported, key=lambda t: self.search.sign * (t.best or 0.0), default=None)


class Controller:
    """Runs one search; after a kill, a new one with the same journal continues."""

    def __init__(
        self,
        server: Client,
        search: Search,
        job: NewJob,
        journal: Journal,
        *,
        on_change: Callable[[Trial], object] | None = None,
        poll_s: float = POLL_S,
    ) -> None:
        check_job(search, job)
        self._server, self._search, self._job, self._journal = server, search, job, journal
        self._points = points(search)
        self._on_change = on_change if on_change is not None else _ignore
        self._poll_s = poll_s
        self._strategy = create_strategy(search, job.steps)
        self._curves: dict[int, LearningCurve] = {}
        self._read: dict[int, tuple[str, float, float | None]] = {}
        """trial → state, steps and last value of the metric when its curve was read"""
        self._weight: dict[int, float] = {}
        """trial → weight that its job has, relative to the job's"""
        self._next_weight: float = 1.0
        """relative weight of trials that are submitted now"""
        self._device_hours = 0.0
        self._reached_at = -math.inf
        """time at which the server last answered"""

    def run(self) -> SearchResult:
        """Run the search to its end; once reached, the server may be away for ten minutes."""
        while True:
            try:
                self._submit_recorded()
                self._read_trials()
                self._decide()
                reason = self._reason_to_end()
                if reason is not None:
                    self._stop_rest(reason)
                    return self.result(reason)
                self._submit_new()
            except UnreachableError:
                if time.monotonic() - self._reached_at > _PATIENCE_S:
                    raise
            time.sleep(self._poll_s)

    def result(self, reason: str = "") -> SearchResult:
        """Return the trials so far."""
        trials = [self._journal.trials[number] for number in sorted(self._journal.trials)]
        return SearchResult(self._search, trials, reason, self._device_hours)

    # -- submission -----------------------------------------------------------------------------

    def _submit_recorded(self) -> None:
        """Submit trials of the journal whose jobs are unknown: a kill may have come between."""
        for trial in [*self._journal.trials.values()]:
            if trial.job is None and not trial.has_ended:
                self._submit(trial)
            elif trial.job is not None and trial.replaces is not None:
                self._stop(self._journal.trials[trial.replaces], "replaced")

    def _submit_new(self) -> None:
        trials = self._journal.trials
        unfinished = sum(1 for trial in trials.values() if not trial.has_ended)
        for number in range(len(self._points)):
            if unfinished >= self._search.max_unfinished:
                break
            if number not in trials:
                self._add(Trial(number, self._points[number]))
                unfinished += 1

    def _add(self, trial: Trial) -> None:
        self._journal.add(trial)
        self._submit(trial)

    def _submit(self, trial: Trial) -> None:
        """Submit the job of a trial; the key makes a repeated submission harmless."""
        job = trial_job(self._search, self._job, trial)
        source = None if trial.source is None else self._journal.trials[trial.source].job
        body = replace(
            job,
            weight=max(job.weight * self._next_weight, MIN_WEIGHT),
            start_from=source or job.start_from,
            idempotency_key=f"{self._journal.search_id}/{trial.number}",
        ).message()
        self._weight[trial.number] = self._next_weight
        try:
            submitted = SubmittedJob(self._server.post("/v1/jobs", body))
        except ServerError as error:
            if source is None or error.code != "input":
                raise
            # The source has no checkpoint yet: the trial to replace continues.
            self._journal.change(trial, state="refused")
        else:
            self._journal.change(trial, job=submitted.id)
            if trial.replaces is not None:
                self._stop(self._journal.trials[trial.replaces], "replaced")
        self._on_change(trial)

    # -- observation ----------------------------------------------------------------------------

    def _read_trials(self) -> None:
        """Read states and metrics of the trials."""
        listed = self._server.jobs(multijob=self._search.name)
        self._reached_at = time.monotonic()
        jobs = {job.id: job for job in listed}
        self._device_hours = 0.0
        for trial in self._journal.trials.values():
            job = jobs.get(trial.job or "")
            if job is None:
                if not trial.has_ended:  # an operator removed it
                    self._journal.change(trial, state="removed")
                continue
            self._device_hours += float(job["device_hours"])
            self._weight.setdefault(trial.number, float(job["weight"]) / self._job.weight)
            if not trial.has_ended or trial.number not in self._curves:
                self._read_curve(trial, job)
            if job.has_ended and not trial.has_ended:
                best, steps = self._best(trial.number), job.steps_done
                self._journal.change(trial, state=job.state, best=best, steps=steps)
                self._on_change(trial)

    def _read_curve(self, trial: Trial, job: SubmittedJob) -> None:
        """Read the reports of a trial, if there may be new ones."""
        status = (job.state, job.steps_done, job["metrics"].get(self._search.metric))
        if self._read.get(trial.number) == status:
            return
        reports: Sequence[Mapping[str, Any]] = ()
        if self._search.metric in job["metrics"]:
            metrics = self._server.get(job_path(job.id, "metrics"))
            reports = metrics["history"].get(self._search.metric, ())
        total = float(self._job.steps or max((p["steps"] for p in reports), default=1.0) or 1.0)
        self._curves[trial.number] = LearningCurve(
            trial.number,
            [min(max(point["steps"] / total, 1e-9), 1.0) for point in reports],
            [self._search.sign * point["value"] for point in reports],
            job.has_ended,
            trial.judged,
            trial.replaces,
        )
        self._read[trial.number] = status
        if reports and not trial.has_ended:
            trial.best, trial.steps = self._best(trial.number), job.steps_done
            self._on_change(trial)

    def _best(self, number: int) -> float | None:
        curve = self._curves.get(number)
        return self._search.sign * curve.best if curve is not None and curve.value else None

    # -- decisions ------------------------------------------------------------------------------

    def _decide(self) -> None:
        """Carry out the strategy's decision: stop trials, change weights."""
        decision = self._strategy.decide([self._curves[n] for n in sorted(self._curves)])
        for number in sorted(decision.stopped):
            self._stop(self._journal.trials[number], "pruned")
        for number, weight in decision.weight.items():
            trial = self._journal.trials[number]
            if trial.has_ended or trial.stopped or self._weight.get(number) == weight:
                continue
            value = max(self._job.weight * weight, MIN_WEIGHT)
            with _may_have_ended():
                self._server.ask("PATCH", job_path(trial.job or ""), {"weight": value})
            self._weight[number] = weight
        self._next_weight = min(decision.weight.values(), default=1.0)
        for number, intervals in decision.judged.items():
            self._continue_or_replace(
                self._journal.trials[number], intervals, decision.replaced.get(number)
            )

    def _continue_or_replace(self, trial: Trial, intervals: int, source: int | None) -> None:
        """Replace a trial by a clone of another, or let it continue."""
        trials = self._journal.trials
        number = max(len(self._points) - 1, *trials) + 1
        if source is not None and number < MAX_TRIALS:
            point = perturbed_point(self._search, trials[source].point, number)
            self._add(Trial(number, point, source=source, replaces=trial.number))
        if trial.stopped is None:
            self._journal.change(trial, judged=intervals)
            self._curves[trial.number] = replace(self._curves[trial.number], judged=intervals)

    def _stop(self, trial: Trial, reason: str) -> None:
        """Cancel the job of a trial, with the reason in the journal first."""
        if trial.stopped is None:
            self._journal.change(trial, stopped=reason)
        if not trial.has_ended and trial.job is not None:
            with _may_have_ended():
                self._server.cancel(trial.job)

    def _reason_to_end(self) -> str | None:
        search, trials = self._search, self._journal.trials
        best = max((curve.best for curve in self._curves.values()), default=-float("inf"))
        if search.target is not None and best >= search.sign * search.target:
            return "target reached"
        if search.device_hours is not None and self._device_hours >= search.device_hours:
            return "budget used"
        are_submitted = all(number in trials for number in range(len(self._points)))
        if are_submitted and all(trial.has_ended for trial in trials.values()):
            return "all trials have ended"
        return None

    def _stop_rest(self, reason: str) -> None:
        """Cancel the trials that still run, and wait for their last states."""
        while unfinished := [t for t in self._journal.trials.values() if not t.has_ended]:
            for trial in unfinished:
                if trial.stopped is None:
                    self._stop(trial, reason)
            self._read_trials()
            if all(trial.has_ended for trial in unfinished):
                return
            time.sleep(self._poll_s)


def _ignore(trial: Trial) -> None:
    del trial


@contextmanager
def _may_have_ended() -> Iterator[None]:
    """Change a trial's job, which may have ended or been removed since it was read."""
    try:
        yield
    except ServerError as error:
        if error.code not in ("protocol", "missing"):
            raise


def check_job(search: Search, job: NewJob) -> None:
    """Raise InputError unless the job can be the trials of a search."""
    require_values(job, {"trial", *search.space}, field="command", source="{} in the space")
    require_use(job, list(search.space), field="space")
    if job.steps is None and search.strategy != "none":
        fix = f"expected the steps of a whole trial, which {search.strategy} compares progress by"
        raise InputError("missing", fix=fix, field="steps")


def trial_job(search: Search, job: NewJob, trial: Trial) -> NewJob:
    """Return the job of a trial."""
    values = {"trial": str(trial.number), **{k: str(v) for k, v in trial.point.items()}}
    named = replace(job, name=job.name or f"{search.name}-{{trial}}", multijob=search.name)
    filled = fill(named, values)
    variables = {**filled.environment, "FAIRLEAD_TRIAL": str(trial.number)}
    shown = {label: str(value)[:_MAX_SHOWN] for label, value in trial.point.items()}
    return replace(filled, environment=variables, hyperparameters=shown)
