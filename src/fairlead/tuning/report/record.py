"""Record of a search: the reports of its trials, with their times, as the server keeps them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from fairlead.client import Client, job_path
from fairlead.model.submission.search import Search, Value
from fairlead.submitted_job import SubmittedJob
from fairlead.tuning.controller import SearchResult
from fairlead.tuning.journal import Trial


class TimedReport(NamedTuple):
    """One report of a trial."""

    at: float
    """seconds since the first submission of the search"""
    steps: float
    value: float


@dataclass(frozen=True, slots=True)
class TrialRecord:
    """The reports and costs of one trial."""

    number: int
    point: Mapping[str, Value]
    end: str
    """reason for its stop, or state of its job"""
    best: float | None
    device_hours: float
    reports: Sequence[TimedReport]


@dataclass(frozen=True, slots=True)
class SearchRecord:
    """A search with the records of its trials."""

    search: Search
    reason: str
    """reason for its end; empty while it runs"""
    device_hours: float
    trials: Sequence[TrialRecord]

    @property
    def report_s(self) -> float:
        """Device seconds per report, on average."""
        reports = sum(len(trial.reports) for trial in self.trials)
        return max(3600.0 * self.device_hours / max(reports, 1), 1e-3)

    @property
    def ranked(self) -> list[TrialRecord]:
        """Trials with a report, the best first."""
        known = [(trial.best, trial) for trial in self.trials if trial.best is not None]
        known.sort(key=lambda pair: (-self.search.sign * pair[0], pair[1].number))
        return [trial for _, trial in known]

    def improvements(self) -> Iterator[tuple[float, float, TrialRecord, float]]:
        """Yield seconds, device hours, trial and value of every report that beats all before.

        A trial has used its device hours in proportion to its steps.
        """
        reports = sorted(
            (report, trial.number, trial) for trial in self.trials for report in trial.reports
        )
        used: dict[int, float] = {}
        best = -float("inf")
        for report, number, trial in reports:
            part = report.steps / max(trial.reports[-1].steps, 1e-9)
            used[number] = trial.device_hours * min(part, 1.0)
            if self.search.sign * report.value > best:
                best = self.search.sign * report.value
                yield report.at, sum(used.values()), trial, report.value


def read_record(server: Client, result: SearchResult) -> SearchRecord:
    """Return the record of a search from the server's history of its jobs."""
    search = result.search
    jobs = {job.id: job for job in server.jobs(multijob=search.name)}
    own = [jobs[trial.job] for trial in result.trials if trial.job in jobs]
    began = min((float(job["submitted_at"]) for job in own), default=0.0)
    trials = [
        _trial(server, search, trial, jobs.get(trial.job or ""), began) for trial in result.trials
    ]
    return SearchRecord(search, result.reason, sum(t.device_hours for t in trials), trials)


def _trial(
    server: Client, search: Search, trial: Trial, job: SubmittedJob | None, began: float
) -> TrialRecord:
    """Return the record of a trial; an operator may have removed its job."""
    reports: list[TimedReport] = []
    if job is not None and search.metric in job["metrics"]:
        history = server.get(job_path(job.id, "metrics"))["history"]
        reports = [
            TimedReport(max(point["at"] - began, 0.0), point["steps"], point["value"])
            for point in history.get(search.metric, ())
        ]
    end = trial.stopped or trial.state or (job.state if job is not None else "removed")
    hours = 0.0 if job is None else float(job["device_hours"])
    return TrialRecord(trial.number, trial.point, end, trial.best, hours, reports)
