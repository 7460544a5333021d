"""Gavel's trace generators."""

import random
from collections import Counter
from itertools import pairwise

import pytest
from tests.support.shared_data import needs_shared, shared

from fairlead.data import DEFAULT_CLUSTER
from fairlead.files import check_trace, read_cluster, read_speeds
from fairlead.files.parsing.text import SourceText
from fairlead.files.speeds.table import parse_speeds
from fairlead.model.errors import InputError
from fairlead.model.job import Job
from fairlead.model.speeds.table import SpeedTable
from fairlead.sim.generate import (
    GENERATOR_KINDS,
    GeneratorKind,
    Recipe,
    default_trace,
    generate,
)
from fairlead.testing.cpu_time import cpu_s

SPEEDS = read_speeds("gandiva-fair")
FIRST = [
    (0.0, "LSTM", 1, 1187984.0, "tenant-0"),
    (68.790064, "VAE", 1, 893601.0, "tenant-1"),
    (1846.000243, "LSTM", 4, 21748539.0, "tenant-0"),
]


def made(
    recipe: Recipe, *, seed: int = 0, cluster: str | None = None, speeds: SpeedTable = SPEEDS
) -> tuple[Job, ...]:
    on = read_cluster(cluster) if cluster else None
    return generate(recipe, speeds, random.Random(seed), on)


def duration_s(job: Job) -> float:
    return job.total_steps / SPEEDS.speed(job.workload, ("v100",) * job.gang)


def test_generator_reproduces_the_bundled_trace() -> None:
    recipe = Recipe(
        kind="continuous-multiple",
        jobs=120,
        rate=3.0,
        tenants=3,
        max_gang=4,
        duration_factor=0.1,
    )
    assert default_trace().jobs == made(recipe, seed=42, cluster=DEFAULT_CLUSTER)


def test_bundled_trace_fits_the_default_cluster() -> None:
    jobs = default_trace()
    check_trace(jobs, SPEEDS, read_cluster(DEFAULT_CLUSTER))
    assert len(jobs) == 120
    assert {job.tenant for job in jobs} == {"tenant-0", "tenant-1", "tenant-2"}
    assert {job.gang for job in jobs} == {1, 2, 4}


def test_first_jobs_of_a_seed_never_change() -> None:
    # Literal values, so that a change of the draws or of the machine fails here.
    jobs = made(Recipe(kind="continuous-multiple", jobs=3, rate=2.0, tenants=2), seed=7)
    rows = [(j.arrival_at, j.workload, j.gang, j.total_steps, j.tenant) for j in jobs]
    assert rows == FIRST


def test_jobs_depend_only_on_recipe_and_seed() -> None:
    recipe = Recipe(jobs=50)
    assert made(recipe) == made(recipe)
    assert made(recipe) != made(recipe, seed=1)


def test_static_jobs_arrive_at_time_0() -> None:
    for generator in ("static", "static-multiple"):
        assert {j.arrival_at for j in made(Recipe(kind=generator, jobs=99))} == {0.0}


def test_arrivals_are_poisson_at_the_given_rate() -> None:
    jobs = made(Recipe(jobs=20_000, rate=5.0))
    gaps = [b.arrival_at - a.arrival_at for a, b in pairwise(jobs)]
    mean = sum(gaps) / len(gaps)
    assert jobs[0].arrival_at == 0
    assert mean == pytest.approx(3600 / 5, rel=0.03)
    # An exponential distribution: the standard deviation is the mean, 1/e of gaps exceed it.
    assert sum(gap > mean for gap in gaps) / len(gaps) == pytest.approx(0.368, abs=0.015)
    assert all(round(job.arrival_at * 1e6) / 1e6 == job.arrival_at for job in jobs)


def test_durations_have_gavels_distribution() -> None:
    hours = [duration_s(job) / 60 for job in made(Recipe(jobs=20_000))]
    assert 10**1.5 * 0.9 < min(hours) < 40
    assert 9000 < max(hours) < 10**4 * 1.001
    assert sum(h < 1000 for h in hours) / len(hours) == pytest.approx(0.8, abs=0.01)
    assert sum(h < 10**2.25 for h in hours) / len(hours) == pytest.approx(0.4, abs=0.012)


def test_gangs_have_gavels_distribution_and_single_means_1() -> None:
    n = 20_000
    counts = Counter(job.gang for job in made(Recipe(kind="continuous-multiple", jobs=n)))
    for gang, share in {1: 0.7, 2: 0.1, 4: 0.15, 8: 0.05}.items():
        assert counts[gang] / n == pytest.approx(share, abs=0.01)
    for generator in ("static", "continuous-single"):
        assert {job.gang for job in made(Recipe(kind=generator, jobs=200))} == {1}


def test_workloads_are_drawn_uniformly() -> None:
    counts = Counter(job.workload for job in made(Recipe(jobs=21_000)))
    assert set(counts) == set(SPEEDS.workloads)
    assert all(count == pytest.approx(3000, rel=0.07) for count in counts.values())


def test_gangs_that_do_not_fit_are_not_drawn() -> None:
    recipe = Recipe(kind="static-multiple", jobs=500)
    assert {job.gang for job in made(recipe, cluster="v100=2,k80=4")} == {1, 2, 4}
    capped = Recipe(kind="static-multiple", jobs=500, max_gang=2)
    assert {job.gang for job in made(capped)} == {1, 2}


def test_workloads_get_only_gangs_in_the_table() -> None:
    body = (
        "workload,gang,accelerator,steps_per_s\na,1,v100,1\na,4,v100,3\nb,1,v100,1\nc,1,v100,0\n"
    )
    table = parse_speeds(SourceText("table", body))
    jobs = made(Recipe(kind="static-multiple", jobs=500), speeds=table)
    assert Counter((job.workload, job.gang) for job in jobs).keys() == {
        ("a", 1),
        ("b", 1),
        ("a", 4),
    }


def test_rate_changes_only_arrivals() -> None:
    slow, fast = (made(Recipe(jobs=50, rate=rate)) for rate in (1.0, 10.0))
    assert [j.total_steps for j in slow] == [j.total_steps for j in fast]
    assert slow[-1].arrival_at == pytest.approx(10 * fast[-1].arrival_at)


def test_tenants_weights_and_deadlines_do_not_change_other_draws() -> None:
    plain = made(Recipe(jobs=400))
    rich = made(Recipe(jobs=400, tenants=4, high_share=0.2, deadlines=(1.2, 2.0, 10.0)))
    assert [(j.arrival_at, j.total_steps) for j in plain] == [
        (j.arrival_at, j.total_steps) for j in rich
    ]
    assert set(Counter(j.tenant for j in rich)) == {f"tenant-{i}" for i in range(4)}
    assert sum(j.weight == 5.0 for j in rich) == pytest.approx(80, abs=25)
    factors = Counter(round((j.deadline_s or 0) / duration_s(j), 1) for j in rich)
    assert set(factors) == {1.2, 2.0, 10.0}


def test_arrivals_continue_after_the_window() -> None:
    assert Recipe(jobs=10, window=(4000, 5000)).total == 6100
    assert Recipe(jobs=10, window=(40, 50), extra_jobs=7).total == 57
    assert Recipe(jobs=900, window=(40, 50)).total == 900
    longer, shorter = (made(Recipe(jobs=1, window=(5, last))) for last in (25, 15))
    assert longer[: len(shorter)] == shorter


def test_duration_factor_shortens_every_job() -> None:
    long, short = (made(Recipe(jobs=50, duration_factor=f)) for f in (1.0, 0.1))
    assert sum(j.total_steps for j in short) == pytest.approx(
        sum(j.total_steps for j in long) / 10, rel=1e-3
    )


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("kind", "dynamic"),
        ("jobs", 0),
        ("rate", 0.0),
        ("rate", 1e-300),
        ("rate", float("nan")),
        ("tenants", 0),
        ("high_share", 1.5),
        ("high_weight", 0.0),
        ("deadlines", (1.0, -1.0)),
        ("max_gang", 0),
        ("duration_factor", float("inf")),
        ("window", (5, 5)),
    ],
)
def test_invalid_settings_are_rejected(field: str, value: object) -> None:
    with pytest.raises(InputError) as caught:
        Recipe(**{field: value})  # type: ignore[arg-type]  # wrong on purpose
    assert caught.value.field == field


def test_cluster_on_which_no_workload_runs_is_rejected() -> None:
    assert made(Recipe(), cluster="h100=8")  # unknown speeds are not 0
    text = "workload,gang,accelerator,steps_per_s\nm,1,v100,1\nm,1,k80,0\n"
    speeds = parse_speeds(SourceText("speeds.csv", text))
    with pytest.raises(InputError, match="share accelerators"):
        made(Recipe(), cluster="k80=8", speeds=speeds)


@pytest.mark.parametrize("kind", GENERATOR_KINDS)
def test_50000_jobs_are_generated_within_two_seconds(kind: GeneratorKind) -> None:
    recipe = Recipe(kind=kind, jobs=50_000)
    jobs, took_s = cpu_s(lambda: made(recipe), tries=2)
    assert len(jobs) == 50_000
    assert took_s < 2.0


@needs_shared
def test_traces_from_gavels_table_run_on_gavels_cluster() -> None:
    speeds = read_speeds(shared("data/gavel/simulation_throughputs.json.gz"))
    jobs = made(Recipe(kind="continuous-multiple", jobs=2000), speeds=speeds)
    check_trace(jobs, speeds, read_cluster("v100=36,p100=36,k80=36"))
    assert len({job.workload for job in jobs}) == 26
