"""Average completion times under estimated speeds, over those under the true speeds.

Gavel's continuous trace of single devices: jobs run at the speeds of Gavel's table, decisions use
what was learnt since the start.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from benchmarks.estimate.completion import Figure, split
from benchmarks.estimate.tables import Measured, gavel_pairs, shared_data

from fairlead.estimate.gaussian_process import GaussianProcess
from fairlead.estimate.kernels import PAIR_TERMS
from fairlead.model.speeds.key import SpeedKey
from fairlead.model.speeds.table import SpeedTable
from fairlead.sim.runs import SimulationOptions, run_scenario, scenario_of

NOISY_POLICIES = ("max-min", "finish-time", "makespan", "sjf")
PAIRS_KEPT = 0.2


def options(devices: int, **changes: object) -> SimulationOptions:
    """Return the simulation of the trace on this many devices of each accelerator."""
    values: dict[str, object] = {
        "cluster": f"v100={devices},p100={devices},k80={devices}",
        "speeds": str(shared_data() / "gavel/simulation_throughputs.json.gz"),
        "policy": "max-min",
        "trace": str(
            shared_data().parent / "reference/gavel/cont_single_300_lam1800_seed0.csv.gz"
        ),
    }
    return SimulationOptions(**{**values, **changes})  # type: ignore[arg-type] # values by name


def average_jct_s(setup: SimulationOptions, believed: SpeedTable | None = None) -> float:
    """Return the average completion time of the trace's jobs."""
    scenario = scenario_of(setup)
    if believed is not None:
        scenario = replace(scenario, believed=believed)
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


def noisy_measurements() -> Iterator[Figure]:
    """Yield the costs of measurements that are 10 % off, for several policies."""
    for policy in NOISY_POLICIES:
        setup = options(6, policy=policy)
        exact = average_jct_s(setup)
        noisy = average_jct_s(replace(setup, speeds="guess", truth=setup.speeds))
        noisier = average_jct_s(replace(setup, speeds="guess", truth=setup.speeds, noise=0.1))
        yield Figure("18 devices, 10 % noise over none", policy, noisier / noisy)
        yield Figure("18 devices, 10 % noise over the oracle", policy, noisier / exact)


def estimated_pairs() -> Iterator[Figure]:
    """Yield Gavel's §7.6: packed jobs on 12 devices, a fifth of the pairs measured."""
    setup = options(4, policy="max-min:packed")
    truth = scenario_of(setup).speeds
    oracle = average_jct_s(setup)
    learnt = average_jct_s(setup, _with_estimated_pairs(truth, gavel_pairs()))
    case = "12 devices, packed, completion over the oracle's"
    yield Figure(case, "estimated pairs", learnt / oracle)
    yield Figure(case, "not packed", average_jct_s(options(4)) / oracle)


def _with_estimated_pairs(truth: SpeedTable, pairs: Measured) -> SpeedTable:
    """Return the table with all but a fifth of the pairs of single devices estimated."""
    kept, hidden = split(len(pairs.keys), PAIRS_KEPT, 0)
    process = GaussianProcess(PAIR_TERMS, pairs.cells.take(kept), np.log(pairs.value[kept]))
    part = np.minimum(process.predict(pairs.cells.take(hidden)).median, 1.0)
    speeds: dict[SpeedKey, float] = dict(truth.steps_per_s)
    for row, keeps in zip(hidden.tolist(), part.tolist(), strict=True):
        key = pairs.keys[row]
        speeds[key] = keeps * speeds[key._replace(partner=None)]
    return SpeedTable(speeds)
