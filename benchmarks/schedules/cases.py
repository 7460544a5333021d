"""Traces on clusters: Gavel's continuous and static ones, and two virtual clusters of Philly."""

import os
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fairlead.files import read_cluster, read_trace
from fairlead.files.traces.convert import convert
from fairlead.model.job import Job
from fairlead.model.speeds.table import SpeedTable
from fairlead.sim.generate import GeneratorKind, Recipe, generate

SHARED = Path(os.environ.get("FAIRLEAD_SHARED", Path(__file__).parents[3] / "shared"))
SMALL, LARGE = "v100=12,p100=12,k80=12", "v100=36,p100=36,k80=36"
PHILLY = {"103959": "v100=18,p100=18,k80=18", "0e4a51": "v100=54,p100=54,k80=54"}
"""virtual cluster → cluster that its first jobs load well, but not for ever"""
PHILLY_JOBS = 400
"""jobs of each: the first weeks of a log of three months"""


@dataclass(frozen=True)
class Case:
    """A trace on a cluster with the speeds of its workloads."""

    name: str
    cluster: str
    jobs: Sequence[Job]
    speeds: SpeedTable


def continuous_cases(speeds: SpeedTable) -> list[Case]:
    """Return the shared trace, its generated siblings and one at a high rate."""
    reference = SHARED / "reference/gavel/cont_single_300_lam1800_seed0.csv.gz"
    cases = [Case("shared", SMALL, read_trace(reference).jobs, speeds)]
    for seed in range(1, 6):
        cases.append(_generated(f"sibling {seed}", "continuous-single", 300, 2.0, seed, speeds))
    for seed in range(1, 6):
        name = f"gangs {seed}"
        cases.append(_generated(name, "continuous-multiple", 200, 1.0, seed, speeds))
    cases.append(_generated("5000", "continuous-single", 5000, 5.6, 0, speeds, LARGE))
    return cases


def static_cases(speeds: SpeedTable) -> list[Case]:
    """Return static traces of gangs."""
    return [
        _generated(
            f"static {seed}", "static-multiple", 100, 1.0, seed, speeds, "v100=8,p100=16,k80=24"
        )
        for seed in range(6)
    ]


def philly_cases(speeds: SpeedTable) -> list[Case]:
    """Return the virtual clusters of Philly, with Gavel's workloads drawn for their jobs."""
    log = SHARED / "data/philly_via_gavel/philly_vc_jobs.csv.gz"
    cases = []
    for name, cluster in PHILLY.items():
        jobs = convert(log, speeds, tenant=name).trace.jobs[:PHILLY_JOBS]
        cases.append(Case(f"philly {name}", cluster, jobs, speeds))
    return cases


def _generated(
    name: str,
    kind: GeneratorKind,
    jobs: int,
    rate: float,
    seed: int,
    speeds: SpeedTable,
    cluster: str = SMALL,
) -> Case:
    recipe = Recipe(kind=kind, jobs=jobs, rate=rate)
    made = generate(recipe, speeds, random.Random(seed), read_cluster(cluster))
    return Case(name, cluster, made, speeds)
