"""Comparisons: runs, traces and tables."""

from dataclasses import replace

import numpy as np
import pytest

from fairlead.files import parse_cluster, read_speeds
from fairlead.model.errors import UsageError
from fairlead.sim.compare import Comparison, compare, run_one, split_policies
from fairlead.sim.generate import Recipe
from fairlead.sim.parallel_runs import RunError
from fairlead.sim.report.tables import jobs_csv, results_csv


def tiny(**changes: object) -> Comparison:
    setting = Comparison(
        policies=("fifo", "isolated"),
        cluster=parse_cluster("v100=2/2,k80=4/2"),
        speeds=read_speeds("gandiva-fair"),
        recipe=Recipe(jobs=12, tenants=2, duration_factor=0.02, kind="continuous-multiple"),
        seeds=(0, 1),
        loads=(6.0, 12.0),
    )
    return replace(setting, **changes)  # type: ignore[arg-type]  # one field each


@pytest.mark.parametrize(
    ("texts", "policies"),
    [
        (["fifo"], ("fifo",)),
        (["max-min,max-min:agnostic, fifo"], ("max-min", "max-min:agnostic", "fifo")),
        (["max-min:agnostic,fifo"], ("max-min:agnostic", "fifo")),
        # A comma before an unknown name separates options.
        (["max-min:inner=fifo,agnostic,fifo"], ("max-min:inner=fifo,agnostic", "fifo")),
        (["max-min:a=1,b=2"], ("max-min:a=1,b=2",)),
        (["max-min:a", "b,fifo"], ("max-min:a", "b", "fifo")),
        # Without options before it, an unknown name is a misspelt policy.
        (["fifo,maxmin"], ("fifo", "maxmin")),
        (["shares:x=1,ideal"], ("shares:x=1", "ideal")),
        ([",fifo,,isolated,"], ("fifo", "isolated")),
    ],
)
def test_comma_starts_a_policy_only_before_a_known_name(
    texts: list[str], policies: tuple[str, ...]
) -> None:
    assert split_policies(texts) == policies


@pytest.mark.parametrize("texts", [[], [""], [","], ["fifo,isolated,fifo"], ["fifo", "fifo"]])
def test_empty_and_duplicate_policies_are_rejected(texts: list[str]) -> None:
    with pytest.raises(UsageError):
        split_policies(texts)


def test_policies_share_traces_and_seeds_and_loads_have_different_ones() -> None:
    comparison = tiny()
    traces = {(run.policy, run.seed, run.load): comparison.trace(run) for run in comparison.runs()}
    assert len(traces) == 8
    for seed in (0, 1):
        for load in (6.0, 12.0):
            assert traces["fifo", seed, load] == traces["isolated", seed, load]
    assert traces["fifo", 0, 6.0] != traces["fifo", 1, 6.0]
    assert traces["fifo", 0, 6.0][-1].arrival_at == pytest.approx(
        2 * traces["fifo", 0, 12.0][-1].arrival_at
    )


def test_timelines_are_recorded_at_the_first_seed_and_the_middle_load() -> None:
    recorded = [run for run in tiny(loads=(3.0, 6.0, 12.0)).runs() if run.record_timeline]
    assert [(run.policy, run.seed, run.load) for run in recorded] == [
        ("fifo", 0, 6.0),
        ("isolated", 0, 6.0),
    ]


def test_tables_do_not_depend_on_the_number_of_workers() -> None:
    comparison = tiny(seeds=(0,))
    serial, parallel = compare(comparison), compare(comparison, workers=2)
    assert results_csv(serial) == results_csv(parallel)
    assert jobs_csv(serial) == jobs_csv(parallel)
    assert results_csv(serial) != results_csv(compare(tiny(seeds=(1,))))


def test_tables_have_one_row_per_run_and_one_row_per_job_and_run() -> None:
    outcomes = compare(tiny())
    assert len(results_csv(outcomes).splitlines()) == 1 + 8
    lines = jobs_csv(outcomes).splitlines()
    assert len(lines) == 1 + 8 * 12
    assert lines[1].startswith("fifo,0,6,0,tenant-")


def test_outcome_lists_only_jobs_of_the_window() -> None:
    comparison = tiny(window=(3, 8), seeds=(0,), loads=(6.0,))
    (fifo, _) = compare(comparison)
    assert fifo.jobs.id == ("3", "4", "5", "6", "7")
    assert fifo.figures.avg_jct_s == pytest.approx(fifo.jobs.jct_s.mean())


def test_timeline_agrees_with_the_utilization_of_the_run() -> None:
    comparison = tiny(seeds=(0,), loads=(12.0,))
    for outcome in compare(comparison):
        timeline = outcome.timeline
        assert timeline is not None
        span = timeline.until - timeline.begin
        share = (timeline.end - timeline.start).sum() / (span * 6)
        assert share == pytest.approx(outcome.figures.utilization, rel=1e-9)
        gangs = np.array([job.gang for job in timeline.jobs])
        # Each lease appears once per device of its gang.
        starts = set(zip(timeline.job.tolist(), timeline.start.tolist(), strict=True))
        assert len(timeline.job) == sum(gangs[job] for job, _ in starts)
        for device in range(6):
            rows = timeline.device == device
            assert (timeline.start[rows][1:] >= timeline.end[rows][:-1]).all()


def test_error_of_a_failed_run_names_the_run_also_from_another_process() -> None:
    # The trace has a workload that is not in the table. Any run may fail first.
    comparison = tiny()
    job = replace(comparison.trace(next(comparison.runs()))[0], workload="unknown-model")
    broken = tiny(recipe=None, jobs=(job,), seeds=(None,), loads=(None,))
    for workers in (1, 2):
        with pytest.raises(RunError, match=r"(fifo|isolated|max-min).*unknown-model"):
            compare(broken, workers=workers)


def test_ideal_mechanism_has_figures_but_no_timeline() -> None:
    comparison = tiny(policies=("isolated",), mechanism="ideal", seeds=(0,), loads=(6.0,))
    outcome = run_one(comparison, next(comparison.runs()))
    assert outcome.timeline is None
    assert outcome.figures.unfinished == 0
