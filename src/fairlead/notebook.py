"""Python API for notebooks and scripts: simulate policies and look at the results as tables.

```python
import fairlead

run = fairlead.simulate("max-min", cluster="v100=8,p100=8,k80=16")
run.summary["avg_jct_s"]
run.jobs["jct_s"]                  # one list per column; run.jobs.to_pandas() for a DataFrame
fairlead.compare(["max-min", "fifo"], cluster="v100=8,k80=16")
```
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from fairlead.data import DEFAULT_CLUSTER, DEFAULT_SPEEDS
from fairlead.mechanisms.factory import create_mechanism
from fairlead.model.errors import ImpossibleJobError, UsageError
from fairlead.sim.compare import check_policies, default_restore_cost_s
from fairlead.sim.metrics import JobResult, Result, TenantResult
from fairlead.sim.runs import SimulationOptions, run_scenario, scenario_of

FIGURES = (
    "avg_jct_s",
    "median_jct_s",
    "p90_jct_s",
    "p99_jct_s",
    "makespan_s",
    "utilization",
    "finish_time_fairness",
    "preemptions",
    "migrations",
    "cost_usd",
    "slo_violations",
    "unfinished",
    "rounds",
    "solves",
)
"""figures of a run that are plain numbers"""
_MAX_ROWS_SHOWN = 50


@dataclass(frozen=True, slots=True)
class Table:
    """Rows with named columns; notebooks render it as a table."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    caption: str = ""
    """assumptions that the figures rest on"""

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, column: str) -> list[Any]:
        """Return the values of a column, one per row."""
        if column not in self.columns:
            raise UsageError(
                f"{column}: no such column: expected one of {', '.join(self.columns)}"
            )
        at = self.columns.index(column)
        return [row[at] for row in self.rows]

    def as_dicts(self) -> Iterator[dict[str, Any]]:
        """Yield each row as column → value."""
        return (dict(zip(self.columns, row, strict=True)) for row in self.rows)

    def to_pandas(self) -> Any:
        """Return the table as a pandas DataFrame; needs pandas."""
        import pandas  # noqa: PLC0415  # optional, and slow to import

        return pandas.DataFrame(list(self.rows), columns=list(self.columns))

    def _repr_html_(self) -> str:
        def line(cells: Sequence[Any], tag: str) -> str:
            return "".join(f"<{tag}>{escape(_text(cell))}</{tag}>" for cell in cells)

        body = "".join(f"<tr>{line(row, 'td')}</tr>" for row in self.rows[:_MAX_ROWS_SHOWN])
        more = len(self.rows) - _MAX_ROWS_SHOWN
        note = f"<p>{more} more rows</p>" if more > 0 else ""
        caption = f"<caption>{escape(self.caption)}</caption>" if self.caption else ""
        return f"<table>{caption}<tr>{line(self.columns, 'th')}</tr>{body}</table>{note}"


@dataclass(frozen=True, slots=True)
class Simulation:
    """The result of one simulated run."""

    policy: str
    result: Result
    """every figure, as ``fairlead simulate --json`` writes it (``result.as_dict()``)"""

    @property
    def summary(self) -> dict[str, float | int | None]:
        """The figures that are plain numbers, by name."""
        return {name: getattr(self.result, name) for name in FIGURES}

    @property
    def jobs(self) -> Table:
        """One row per job."""
        return _table(JobResult, self.result.jobs)

    @property
    def tenants(self) -> Table:
        """One row per tenant: entitled and received shares."""
        return _table(TenantResult, self.result.tenants)

    def _repr_html_(self) -> str:
        return Table(("figure", "value"), tuple(self.summary.items()))._repr_html_()


def simulate(
    policy: str = "max-min",
    *,
    cluster: str = DEFAULT_CLUSTER,
    trace: str | None = None,
    speeds: str = DEFAULT_SPEEDS,
    mechanism: str | None = None,
    round_s: float | None = None,
    restore_cost_s: float = 0.0,
    physics: str = "none",
    believed: str | None = None,
    truth: str | None = None,
    noise: float = 0.0,
    plan_on: float = 0.5,
    explore: bool = False,
    failures: str | Path | None = None,
    window: tuple[int, int] | None = None,
    tenants_file: str | Path | None = None,
    skip_impossible: bool = False,
    seed: int = 0,
) -> Simulation:
    """Run a trace through the scheduler in virtual time.

    The parameters are the options of ``fairlead simulate``, except its outputs ``--log`` and
    ``--json``: ``cluster`` is a specification such as ``"v100=8,k80=16"`` or a YAML file,
    ``trace`` and ``speeds`` are files or bundled names, ``window`` is a pair such as ``(0, 20)``.
    ``result.skipped`` lists the jobs that ``skip_impossible`` left out.
    """
    options = SimulationOptions(
        cluster=cluster,
        speeds=speeds,
        policy=policy,
        trace=trace,
        mechanism=mechanism,
        round_s=round_s,
        restore_cost_s=restore_cost_s,
        physics=physics,
        believed=believed,
        truth=truth,
        noise=noise,
        plan_on=plan_on,
        explore=explore,
        failures=None if failures is None else Path(failures),
        window=None if window is None else _window_text(window),
        tenants_file=None if tenants_file is None else Path(tenants_file),
        skip_impossible=skip_impossible,
        seed=seed,
    )
    try:
        scenario = scenario_of(options)
    except ImpossibleJobError as error:
        raise error.or_skip("skip_impossible=True") from None
    result, _, _ = run_scenario(policy, scenario)
    return Simulation(policy, result)


def _window_text(window: object) -> str:
    match window:
        case [first, last]:
            return f"{first}:{last}"
    raise UsageError(f"window: not a pair: {window!r}: expected two numbers such as (0, 20)")


def compare(
    policies: Sequence[str], *, restore_cost_s: float | None = None, **options: Any
) -> Table:
    """Simulate each policy with the same options; return one row of figures per policy.

    Each restart costs a job 20 s, but at most half of the shortest round, unless
    ``restore_cost_s`` says otherwise; 0 ignores restarts. The table's caption states the cost and
    the number of skipped jobs.
    """
    if isinstance(policies, str):
        raise UsageError(f"policies: a text: {policies!r}: expected a list: [{policies!r}]")
    check_policies(policies, "policies")
    if restore_cost_s is None:
        named = options.get("mechanism"), options.get("round_s")
        mechanisms = [create_mechanism(policy, *named) for policy in policies]
        restore_cost_s = default_restore_cost_s(mechanisms)
    runs = [simulate(policy, restore_cost_s=restore_cost_s, **options) for policy in policies]
    rows = tuple((run.policy, *run.summary.values()) for run in runs)
    caption = f"Each restart costs a job {restore_cost_s:g} s.{_skipped_text(runs)}"
    return Table(("policy", *FIGURES), rows, caption)


def _skipped_text(runs: Sequence[Simulation]) -> str:
    """Return the number of skipped jobs, by policy if they differ; empty if there are none."""
    counts = {run.policy: len(run.result.skipped) for run in runs}
    if not any(counts.values()):
        return ""
    if len(set(counts.values())) == 1:
        number = str(next(iter(counts.values())))
    else:
        number = ", ".join(f"{count} under {policy}" for policy, count in counts.items())
    return f" Jobs skipped because they can never run: {number}."


def _table(row_type: type[JobResult] | type[TenantResult], rows: Sequence[Any]) -> Table:
    names = tuple(row_type.__slots__)
    return Table(names, tuple(tuple(getattr(row, name) for name in names) for row in rows))


def _text(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
