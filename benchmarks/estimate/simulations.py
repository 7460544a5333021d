"""Average completion times under estimated speeds, over those under the true speeds.

Gavel's continuous trace of single devices: jobs run at the speeds of Gavel's table, decisions use
what was learnt since the start.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any, TypeVar

import numpy as np
from benchmarks.estimate.completion import Figure, split
from benchmarks.estimate.tables import Measured, gavel_pairs, shared_data

from fairlead.estimate.gaussian_process import GaussianProcess
from fairlead.estimate.kernels import PAIR_TERMS
from fairlead.files.speeds.prior import prior_speeds
from fairlead.mechanisms.factory import mechanisms_without_policy
from fairlead.model.speeds.key import SpeedKey
from fairlead.model.speeds.planned import Trials
from fairlead.model.speeds.table import SpeedTable
from fairlead.registry import available
from fairlead.sim.parallel_runs import run_all
from fairlead.sim.runs import SimulationOptions, run_scenario, scenario_of
from fairlead.sim.scenario import Learning, Scenario

RunT = TypeVar("RunT")

NOISE = 0.1
"""standard deviation of the logarithm of a measured speed"""
NOISE_SEEDS = 3
"""draws of that noise, each compared with the same run without noise"""
LONGER_ROUNDS = {"gandiva": "gandiva:round-s=360"}
"""mechanisms whose own rounds, here of 60 s, would take most of the benchmark's time"""
PAIRS_KEPT = 0.2
PAIR_SEEDS = 3
"""splits of the pairs into measured and estimated ones"""
PLANS: Mapping[str, Mapping[str, Any]] = {
    "median": {},
    "quantile 0.7": {"quantile": 0.7},
    "quantile 0.9": {"quantile": 0.9},
    "value of trials": {"trials": Trials()},
}
"""speeds that decisions use in place of estimates, as fields of the beliefs"""
ORACLE = "oracle"
"""decisions that know all speeds from the start"""
RESTART_S = 60.0
"""seconds that a restart costs in the runs with this cost"""
PECULIARITY_SD = 0.6
"""standard deviation of the logarithm of a workload's random affinity to an accelerator"""
PECULIAR_SEEDS = 3


def options(devices: int, policy: str = "max-min") -> SimulationOptions:
    """Return the simulation of the trace on this many devices of each accelerator."""
    return SimulationOptions(
        cluster=f"v100={devices},p100={devices},k80={devices}",
        speeds=str(shared_data() / "gavel/simulation_throughputs.json.gz"),
        policy=policy,
        trace=str(shared_data().parent / "reference/gavel/cont_single_300_lam1800_seed0.csv.gz"),
    )


def average_jct_s(setup: SimulationOptions, **changes: Any) -> float:
    """Return the average completion time of the trace's jobs in a changed scenario.

    ``changes`` are fields of ``Scenario``, of any type.
    """
    scenario = replace(scenario_of(setup), **changes)
    result, _, _ = run_scenario(setup.policy, scenario)
    assert result.avg_jct_s is not None
    return result.avg_jct_s


def learnt_from_nothing() -> Iterator[Figure]:
    """Yield the costs of starting without a table, on a cluster with room and on a full one."""
    for devices in (12, 6):
        oracle = average_jct_s(options(devices))
        for prior in ("none", "guess"):
            setup = options(devices)
            learnt = average_jct_s(replace(setup, speeds=prior, truth=setup.speeds))
            case = f"{3 * devices} devices, completion over the oracle's"
            yield Figure(case, f"prior: {prior}", learnt / oracle)


def exploration() -> Iterator[Figure]:
    """Yield costs and gains of trying accelerators: on Gavel's table, and on peculiar workloads.

    Peculiar workloads are fast on accelerators that no data sheet tells.
    """
    tables = [(None, 0.0), (None, RESTART_S), *((s, RESTART_S) for s in range(PECULIAR_SEEDS))]
    plans = (ORACLE, *PLANS)
    runs = [(seed, restart_s, plan) for seed, restart_s in tables for plan in plans]
    averages = iter(_in_parallel(_average_of_plan, options(6), runs))
    for seed, restart_s in tables:
        name = "Gavel's table" if seed is None else f"random affinities {seed}"
        case = f"18 devices, {name}, restart {restart_s:.0f} s, completion over the oracle's"
        oracle = next(averages)
        for plan in PLANS:
            yield Figure(case, plan, next(averages) / oracle)


def _average_of_plan(setup: SimulationOptions, run: tuple[int | None, float, str]) -> float:
    """Return the average completion time with a draw of affinities, a restart and a plan."""
    seed, restart_s, plan = run
    table = scenario_of(setup).speeds
    if seed is not None:
        table = _with_affinities(table, np.random.default_rng(seed))
    fixed: dict[str, Any] = {"speeds": table, "restore_cost_s": restart_s}
    if plan == ORACLE:
        return average_jct_s(setup, **fixed)
    believed = replace(prior_speeds("guess"), **PLANS[plan])
    return average_jct_s(setup, **fixed, believed=believed, learning=Learning())


def _in_parallel(
    simulate: Callable[[SimulationOptions, RunT], float],
    setup: SimulationOptions,
    runs: Sequence[RunT],
) -> list[float]:
    """Return the average completion time of every run, in their order."""
    workers = os.cpu_count() or 1
    return run_all(simulate, setup, runs, workers=workers, on_done=lambda: None)


def _with_affinities(table: SpeedTable, rng: np.random.Generator) -> SpeedTable:
    """Return the speeds of jobs alone, each workload faster or slower on each accelerator."""
    factors: dict[tuple[str, str], float] = {}
    speeds: dict[SpeedKey, float] = {}
    for key, speed in table.steps_per_s.items():
        place = key.workload, key.accelerator
        if place not in factors:
            factors[place] = float(np.exp(rng.normal(0.0, PECULIARITY_SD)))
        if key.partner is None:
            speeds[key] = speed * factors[place]
    return SpeedTable(speeds)


def noisy_measurements() -> Iterator[Figure]:
    """Yield the costs of measurements that are 10 % off, for every policy and mechanism.

    Means over the draws of the noise: one changed turn early in the trace may move an average by
    some percent in either direction.
    """
    names = sorted({*available("policies"), *mechanisms_without_policy()})
    policies = [LONGER_ROUNDS.get(name, name) for name in names]
    draws = [(0.0, 0), *((NOISE, seed) for seed in range(NOISE_SEEDS))]
    runs = [(policy, *draw) for policy, draw in product(policies, draws)]
    averages = np.reshape(_in_parallel(_average_under_noise, options(6), runs), (-1, len(draws)))
    costs = (averages[:, 1:] / averages[:, :1]).mean(axis=1).tolist()
    case = f"18 devices, {NOISE * 100:.0f} % noise over none"
    for policy, cost in zip(policies, costs, strict=True):
        yield Figure(case, policy, cost)
    yield Figure(case, "largest", max(costs))


def _average_under_noise(setup: SimulationOptions, run: tuple[str, float, int]) -> float:
    """Return the average completion time under a policy that measures with a draw of noise."""
    policy, noise, seed = run
    return average_jct_s(
        replace(setup, policy=policy, speeds="guess", truth=setup.speeds, noise=noise, seed=seed)
    )


def exaggeration() -> Iterator[Figure]:
    """Yield the effect of declaring twice the speed on a V100, on the tenant that does so.

    Completion of its jobs over that with honest declarations; below 1, the lie would pay.
    """
    setup = replace(options(6), speeds="guess", truth=options(6).speeds)
    scenario = scenario_of(setup)
    liar = Counter(job.workload for job in scenario.jobs).most_common(1)[0][0]
    case = "18 devices, completion of a tenant that declares twice its speed"
    for method, learning in (("measured", Learning()), ("believed to the end", None)):
        honest, lied = (
            _completion_of(liar, factor, replace(scenario, learning=learning))
            for factor in (1.0, 2.0)
        )
        yield Figure(case, method, lied / honest)


def _completion_of(workload: str, factor: float, scenario: Scenario) -> float:
    """Return the average completion of a tenant whose V100s are so many times as fast, it says."""
    true = {
        name: scenario.speeds.speed(workload, [name]) for name in scenario.cluster.accelerators
    }
    declared = {**true, "v100": factor * true["v100"]}
    jobs = [
        replace(job, tenant="liar", declared_speeds=declared) if job.workload == workload else job
        for job in scenario.jobs
    ]
    own = {job.id for job in jobs if job.tenant == "liar"}
    result, _, _ = run_scenario("max-min", replace(scenario, jobs=jobs))
    return float(np.mean([job.jct_s for job in result.jobs if job.id in own]))


def estimated_pairs() -> Iterator[Figure]:
    """Yield Gavel's §7.6: packed jobs on 12 devices, a fifth of the pairs measured before.

    The planner chooses pairs that look good, so it meets the estimates that are too high. Like
    the paper's estimator it works online: a pair that runs is measured, which ends the error.
    """
    setup = options(4, policy="max-min:packed")
    truth = scenario_of(setup).speeds
    oracle = average_jct_s(setup)
    case = "12 devices, packed, completion over the oracle's"
    for seed in range(PAIR_SEEDS):
        believed = _with_estimated_pairs(truth, gavel_pairs(), seed)
        learnt = average_jct_s(setup, believed=believed, learning=Learning())
        yield Figure(case, f"estimated, then measured, split {seed}", learnt / oracle)
    believed = _with_estimated_pairs(truth, gavel_pairs(), 0)
    kept = average_jct_s(setup, believed=believed)
    yield Figure(case, "estimates kept, split 0", kept / oracle)
    yield Figure(case, "not packed", average_jct_s(options(4)) / oracle)


def _with_estimated_pairs(truth: SpeedTable, pairs: Measured, seed: int) -> SpeedTable:
    """Return the table with all but a fifth of the pairs of single devices estimated."""
    kept, hidden = split(len(pairs.keys), PAIRS_KEPT, seed)
    process = GaussianProcess(PAIR_TERMS, pairs.cells.take(kept), np.log(pairs.value[kept]))
    part = np.minimum(process.predict(pairs.cells.take(hidden)).median, 1.0)
    speeds: dict[SpeedKey, float] = dict(truth.steps_per_s)
    for row, keeps in zip(hidden.tolist(), part.tolist(), strict=True):
        key = pairs.keys[row]
        speeds[key] = keeps * speeds[key._replace(partner=None)]
    return SpeedTable(speeds)
