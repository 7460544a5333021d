"""Running a comparison: which runs, on which traces, with what in the tables."""

from dataclasses import replace

import numpy as np
import pytest

from fairlead.files import parse_cluster, read_speeds
from fairlead.model.errors import UsageError
from fairlead.sim.compare import Comparison, RunError, compare, perform, split_policies
from fairlead.sim.generate import Recipe
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
    ("texts", "found"),
    [
        (["fifo"], ("fifo",)),
        (["max-min,max-min:agnostic, fifo"], ("max-min", "max-min:agnostic", "fifo")),
        (["max-min:agnostic,fifo"], ("max-min:agnostic", "fifo")),
        # A comma before something that is no policy separates options.
        (["max-min:inner=fifo,agnostic,fifo"], ("max-min:inner=fifo,agnostic", "fifo")),
        (["max-min:a=1,b=2"], ("max-min:a=1,b=2",)),
        (["max-min:a", "b,fifo"], ("max-min:a", "b", "fifo")),
        # Without options before it, an unknown name can only be a policy's, misspelt.
        (["fifo,maxmin"], ("fifo", "maxmin")),
        (["shares:x=1,ideal"], ("shares:x=1", "ideal")),
        ([",fifo,,isolated,"], ("fifo", "isolated")),
    ],
)
def test_a_comma_begins_a_policy_only_before_a_known_name(
    texts: list[str], found: tuple[str, ...]
) -> None:
    assert split_policies(texts) == found


@pytest.mark.parametrize("texts", [[], [""], [","], ["fifo,isolated,fifo"], ["fifo", "fifo"]])
def test_no_policy_or_one_listed_twice_is_refused(texts: list[str]) -> None:
    with pytest.raises(UsageError):
        split_policies(texts)


def test_every_policy_gets_the_same_trace_and_every_seed_and_load_another() -> None:
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


def test_one_run_of_each_policy_is_watched_at_the_first_seed_and_the_middle_load() -> None:
    watched = [run for run in tiny(loads=(3.0, 6.0, 12.0)).runs() if run.watched]
    assert [(run.policy, run.seed, run.load) for run in watched] == [
        ("fifo", 0, 6.0),
        ("isolated", 0, 6.0),
    ]


def test_the_same_input_gives_the_same_tables_whatever_the_number_of_workers() -> None:
    comparison = tiny(seeds=(0,))
    alone, parallel = compare(comparison), compare(comparison, workers=2)
    assert results_csv(alone) == results_csv(parallel)
    assert jobs_csv(alone) == jobs_csv(parallel)
    assert results_csv(alone) != results_csv(compare(tiny(seeds=(1,))))


def test_tables_have_one_row_a_run_and_one_row_a_job_of_a_run() -> None:
    outcomes = compare(tiny())
    assert len(results_csv(outcomes).splitlines()) == 1 + 8
    lines = jobs_csv(outcomes).splitlines()
    assert len(lines) == 1 + 8 * 12
    assert lines[1].startswith("fifo,0,6,0,tenant-")


def test_only_the_jobs_of_the_window_are_reported() -> None:
    comparison = tiny(window=(3, 8), seeds=(0,), loads=(6.0,))
    (fifo, _) = compare(comparison)
    assert fifo.jobs.id == ("3", "4", "5", "6", "7")
    assert fifo.figures.avg_jct_s == pytest.approx(fifo.jobs.jct_s.mean())


def test_a_timeline_holds_the_device_time_that_the_run_was_charged() -> None:
    comparison = tiny(seeds=(0,), loads=(12.0,))
    for outcome in compare(comparison):
        timeline = outcome.timeline
        assert timeline is not None
        span = timeline.until - timeline.begin
        share = (timeline.end - timeline.start).sum() / (span * 6)
        assert share == pytest.approx(outcome.figures.utilization, rel=1e-9)
        gangs = np.array([job.gang for job in timeline.jobs])
        # Each lease stands once on each device of its gang.
        starts = set(zip(timeline.job.tolist(), timeline.start.tolist(), strict=True))
        assert len(timeline.job) == sum(gangs[job] for job, _ in starts)
        for device in range(6):
            mine = timeline.device == device
            assert (timeline.start[mine][1:] >= timeline.end[mine][:-1]).all()


def test_a_failing_run_says_which_one_it_was_even_from_another_process() -> None:
    # The trace needs a workload that the table does not have. Which run fails first is open.
    comparison = tiny()
    job = replace(comparison.trace(next(comparison.runs()))[0], workload="unheard-of")
    broken = tiny(recipe=None, jobs=(job,), seeds=(None,), loads=(None,))
    for workers in (1, 2):
        with pytest.raises(RunError, match=r"(fifo|isolated|max-min).*unheard-of"):
            compare(broken, workers=workers)


def test_the_ideal_mechanism_has_figures_but_no_timeline() -> None:
    comparison = tiny(policies=("isolated",), mechanism="ideal", seeds=(0,), loads=(6.0,))
    outcome = perform(comparison, next(comparison.runs()))
    assert outcome.timeline is None
    assert outcome.figures.unfinished == 0
