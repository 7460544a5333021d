"""Time until a search finds a qualified configuration: early feedback, ASHA and FIFO.

    python -m benchmarks.tuning [--seeds 20] [--json] [--live]

Gandiva's Table 3 (§6.2) on recorded learning curves: 240 configurations of 12 hyperparameters, 4
devices, one report per epoch, a minute per epoch, a second to change the trial of a device. The
constants of the strategy were chosen on ``digits``; ``breast_cancer`` was not used for any choice.
Thresholds are accuracies that at least 9, 6 and 4 of the 240 configurations reach. A seed is an
order of the configurations; all strategies get the same orders. Prints the mean time to a
configuration with the accuracy, and by how much early feedback is faster, with a 95 % bootstrap
interval of the ratio of the mean times. Limits are those of ranges.toml (``tuning``); a broken one
makes the exit status 1. ``--live`` runs one search on real servers instead.
"""

import argparse
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass

import numpy as np
from benchmarks.ranges import outside
from benchmarks.tuning import live
from benchmarks.tuning.make_curves import FOLDER

from fairlead.files.recorded_curves import read_curves
from fairlead.model.arrays import FloatArray
from fairlead.tuning.simulation import SearchCluster, simulate_search
from fairlead.tuning.strategies import Asha, Feedback, RunToEnd
from fairlead.tuning.strategies.base import Strategy

DATA: Mapping[str, tuple[float, ...]] = {"digits": (0.97, 0.975, 0.98), "breast_cancer": ()}
"""data set → thresholds; empty: those that as many configurations reach as on ``digits``"""
QUALIFIED = (9, 6, 4)
SLICED = SearchCluster(devices=4, time_sliced=True, report_s=60.0, switch_s=1.0)
FIFO = SearchCluster(devices=4, time_sliced=False, report_s=60.0, switch_s=1.0)
OURS = "feedback, time slicing"
CASES: Mapping[str, tuple[Callable[[float], Strategy], SearchCluster]] = {
    "to the end, FIFO": (lambda _: RunToEnd(), FIFO),
    "ASHA, FIFO": (lambda _: Asha(0.01), FIFO),
    OURS: (lambda target: Feedback(0.03, 2, target), SLICED),
}


def thresholds(data: str, curves: FloatArray) -> list[float]:
    """Return the accuracies to find."""
    if DATA[data]:
        return list(DATA[data])
    best = np.sort(curves.max(axis=1))[::-1]
    return sorted({float(best[count - 1]) for count in QUALIFIED})


def times(curves: FloatArray, accuracy: float, seeds: int) -> dict[str, FloatArray]:
    """Return case → minutes to the accuracy, one per seed."""
    times_of: dict[str, FloatArray] = {}
    for case, (strategy, cluster) in CASES.items():
        minutes = []
        for seed in range(seeds):
            order = np.random.default_rng(seed).permutation(len(curves))
            outcome = simulate_search(curves[order], strategy(accuracy), accuracy, cluster)
            minutes.append(outcome.found_at / 60.0)
        times_of[case] = np.array(minutes)
    return times_of


def interval(slow: FloatArray, fast: FloatArray) -> tuple[float, float, float]:
    """Return the ratio of the means of paired times, and its 95 % bootstrap interval."""
    drawn = np.random.default_rng(0).integers(0, len(slow), (10_000, len(slow)))
    low, high = np.quantile(slow[drawn].mean(axis=1) / fast[drawn].mean(axis=1), [0.025, 0.975])
    return float(slow.mean() / fast.mean()), float(low), float(high)


@dataclass(frozen=True, slots=True)
class Row:
    """Mean time of a case at one threshold, over all orders."""

    data: str
    accuracy: float
    qualified: int
    """configurations that reach the accuracy"""
    case: str
    minutes: float
    ratio: float
    """minutes relative to those of early feedback"""
    low: float
    high: float
    reached: int
    """orders in which the accuracy was found"""

    def __str__(self) -> str:
        return (
            f"{self.data:14} {self.accuracy:.4f} ({self.qualified})  {self.case:24}"
            f" {self.minutes:8.0f} min  {self.ratio:6.2f} x ({self.low:.2f} to {self.high:.2f}),"
            f" found {self.reached}"
        )


def measure(data: str, seeds: int) -> list[Row]:
    """Return one row per threshold and case."""
    curves, rows = read_curves(FOLDER / f"{data}.json.gz").values, []
    for accuracy in thresholds(data, curves):
        qualified = int((curves.max(axis=1) >= accuracy).sum())
        minutes_of = times(curves, accuracy, seeds)
        for case, minutes in minutes_of.items():
            ratios = interval(minutes, minutes_of[OURS])
            mean, reached = float(minutes.mean()), int(np.isfinite(minutes).sum())
            rows.append(Row(data, accuracy, qualified, case, mean, *ratios, reached))
    return rows


def main() -> int:
    """Print the table; return 1 if a limit is broken."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--live", action="store_true")
    arguments = parser.parse_args()
    if arguments.live:
        return live.main()
    rows = [row for data in DATA for row in measure(data, arguments.seeds)]
    if arguments.json:
        print(json.dumps([asdict(row) for row in rows]))
    else:
        for row in rows:
            print(row)
    ratios = {f"{row.case}, {row.accuracy:g}, {row.data}": row.ratio for row in rows}
    broken = outside("tuning", ratios)
    for name in broken:
        print(f"{name}: {ratios[name]:.2f} is outside its range", file=sys.stderr)
    return int(bool(broken))


if __name__ == "__main__":
    sys.exit(main())
