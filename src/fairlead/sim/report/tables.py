"""CSV tables of a comparison: one row per run, and one row per job and run.

Measured times are omitted, so that equal input gives equal bytes.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from fairlead.files.parsing.table import format_table
from fairlead.model.arrays import FloatArray
from fairlead.sim.compare import Outcome

FIGURES = (
    "avg_jct_s",
    "median_jct_s",
    "p90_jct_s",
    "p99_jct_s",
    "makespan_s",
    "utilization",
    "rounds",
    "solves",
    "preemptions",
    "migrations",
    "cost_usd",
    "slo_violations",
    "finish_time_fairness",
    "unfinished",
)
JOB_COLUMNS = (
    "policy",
    "seed",
    "load",
    "id",
    "tenant",
    "arrival_s",
    "started_s",
    "finished_s",
    "jct_s",
    "finish_time_fairness",
    "preemptions",
    "migrations",
)


def results_csv(outcomes: Sequence[Outcome]) -> str:
    """Return one row per run: policy, seed, load (jobs per hour) and every scalar figure."""
    accelerators = list(outcomes[0].figures.busy_share)
    header = (
        "policy",
        "seed",
        "load",
        "jobs",
        *FIGURES,
        *(f"busy_share_{name}" for name in accelerators),
    )
    return format_table(header, (_run_row(outcome, accelerators) for outcome in outcomes))


def _run_row(outcome: Outcome, accelerators: Iterable[str]) -> list[str]:
    figures = outcome.figures
    return [
        *_run_cells(outcome),
        str(len(outcome.jobs.id)),
        *(_cell(getattr(figures, name)) for name in FIGURES),
        *(_cell(figures.busy_share[name]) for name in accelerators),
    ]


def jobs_csv(outcomes: Iterable[Outcome]) -> str:
    """Return one row per job and run; cells without a value are empty."""
    return format_table(JOB_COLUMNS, (row for outcome in outcomes for row in _job_rows(outcome)))


def _job_rows(outcome: Outcome) -> Iterator[list[str]]:
    jobs = outcome.jobs
    run = _run_cells(outcome)
    columns = (jobs.arrival_at, jobs.started_at, jobs.finished_at, jobs.jct_s, jobs.rho)
    cells = zip(
        jobs.id,
        jobs.tenant,
        *map(_known, columns),
        jobs.preemptions.tolist(),
        jobs.migrations.tolist(),
        strict=True,
    )
    for job in cells:
        yield [*run, *map(_cell, job)]


def _run_cells(outcome: Outcome) -> list[str]:
    return [_cell(value) for value in (outcome.run.policy, outcome.run.seed, outcome.run.load)]


def _known(values: FloatArray) -> list[float | None]:
    return [value if np.isfinite(value) else None for value in values.tolist()]


def _cell(value: Any) -> str:
    if value is None:
        return ""
    # Twelve digits distinguish any two figures but not rounding errors between machines.
    return f"{value:.12g}" if isinstance(value, float) else str(value)
