"""Strategies: successive halving, prediction, early feedback, and all of them in simulation."""

import math

import numpy as np
import pytest

from fairlead.tuning.prediction import probability_to_reach
from fairlead.tuning.simulation import SearchCluster, simulate_search
from fairlead.tuning.strategies import Asha, Feedback, Hyperband, RunToEnd
from fairlead.tuning.strategies.base import LearningCurve, Strategy

REPORTS = 50


def power_law(asymptote: float, slope: float, reports: int = REPORTS) -> list[float]:
    progress = np.arange(1, reports + 1) / REPORTS
    return [float(v) for v in asymptote - 0.1 * progress**-slope]


def curve(trial: int, values: list[float], *, has_ended: bool = False) -> LearningCurve:
    progress = [(i + 1) / REPORTS for i in range(len(values))]
    return LearningCurve(trial, progress, values, has_ended)


def test_asha_judges_a_trial_once_per_rung_against_those_that_reached_it() -> None:
    asha = Asha(2 / REPORTS, reduction=2)
    assert asha.rungs == pytest.approx([0.04, 0.08, 0.16, 0.32, 0.64])
    first = curve(0, [0.1, 0.2])
    assert asha.decide([first]).stopped == frozenset()  # alone, it is the best
    better = curve(1, [0.1, 0.3])
    assert asha.decide([first, better]).stopped == frozenset()  # the first was judged already
    worse, unready = curve(2, [0.3, 0.1]), curve(3, [0.0])
    assert worse.value_at(0.04) == 0.3  # the best value up to the rung counts
    assert asha.decide([first, better, worse, unready]).stopped == frozenset()
    worst = curve(4, [0.1, 0.1])
    assert asha.decide([first, better, worse, worst]).stopped == {4}
    assert asha.decide([first, better, worse, worst]).stopped == frozenset()


def test_hyperband_compares_the_trials_of_a_bracket_only() -> None:
    hyperband = Hyperband(1 / 9, reduction=3)
    assert [len(bracket.rungs) for bracket in hyperband.brackets] == [2, 1]
    brackets = [hyperband.bracket_of(trial) for trial in range(8)]
    assert brackets == [0, 0, 0, 1, 1, 0, 0, 0]
    good = [LearningCurve(trial, [1 / 9], [1.0 + trial]) for trial in (3, 4)]
    bad = LearningCurve(0, [1 / 9], [0.0])
    assert hyperband.decide([*good, bad]).stopped == frozenset()  # the best of its own bracket


def test_a_prediction_becomes_certain_and_is_right() -> None:
    reaches, misses = power_law(1.05, 0.5), power_law(0.85, 0.5)
    early = probability_to_reach(0.9, 0.0, [1 / REPORTS], reaches[:1])
    assert 0.01 < early < 0.6
    chances = []
    for values in (reaches, misses):
        progress = [(i + 1) / REPORTS for i in range(20)]
        chances.append(probability_to_reach(0.9, 0.0, progress, values[:20]))
    assert chances[0] > 0.8
    assert chances[1] < 0.05
    assert probability_to_reach(0.5, 0.0, [0.5], [0.6]) == 1.0


def test_feedback_gives_weight_1_to_the_most_promising_and_stops_the_hopeless() -> None:
    good = [curve(trial, power_law(1.02, 0.5, 20)) for trial in (3, 5)]
    flat = [curve(trial, [0.2] * 20) for trial in (0, 1)]
    fair, unseen = curve(2, power_law(0.95, 0.5, 10)), curve(4, [])
    decision = Feedback(0.1, exclusive=2, target=0.9).decide([*flat, fair, *good, unseen])
    assert decision.stopped == {0, 1}
    assert {t for t, weight in decision.weight.items() if weight == 1.0} == {3, 5}
    assert set(decision.weight) == {2, 3, 4, 5}
    assert all(math.log2(weight).is_integer() for weight in decision.weight.values())
    assert decision.weight[2] + decision.weight[4] <= 0.5
    # Before the first report all trials are alike, and the search keeps its whole weight.
    fresh = Feedback(0.1).decide([curve(0, []), curve(1, [])])
    assert fresh.weight == {0: 1.0, 1: 1.0}


def found_at(strategy: Strategy, *, time_sliced: bool, last: bool = True) -> float:
    """Return the minutes until the only good one of 40 trials has reached 0.9."""
    rng = np.random.default_rng(0)
    values = [power_law(float(rng.uniform(0.4, 0.8)), 0.4) for _ in range(39)]
    values.insert(35 if last else 0, power_law(1.05, 0.5))
    cluster = SearchCluster(devices=4, time_sliced=time_sliced, switch_s=1.0)
    outcome = simulate_search(np.array(values), strategy, 0.9, cluster)
    assert outcome.trial == (35 if last else 0)
    return outcome.found_at / 60.0


def test_time_slicing_with_feedback_finds_a_late_configuration_early() -> None:
    to_the_end = found_at(RunToEnd(), time_sliced=False)
    halved = found_at(Asha(1 / REPORTS), time_sliced=False)
    sliced = found_at(Feedback(0.05, 2, 0.9), time_sliced=True)
    assert to_the_end > 8 * REPORTS
    assert to_the_end > 4 * sliced
    assert halved > 1.3 * sliced


def test_a_search_without_a_qualified_trial_ends() -> None:
    cluster = SearchCluster(devices=2)
    values = np.array([power_law(0.5, 0.5)] * 3)
    outcome = simulate_search(values, RunToEnd(), 0.9, cluster)
    assert outcome.found_at == math.inf
    assert (outcome.reports, outcome.seen) == (3 * REPORTS, 3)


@pytest.mark.parametrize(("first", "goal"), [(0.4, 0.9), (0.35, 0.79)])
def test_feedback_stops_no_trial_that_a_straight_line_takes_to_the_target(
    first: float, goal: float
) -> None:
    reports = 6 if first == 0.4 else 12
    line = np.linspace(first, goal, reports).tolist()
    progress = [(i + 1) / reports for i in range(reports)]
    flat = [value if i < 3 else line[2] for i, value in enumerate(line)]
    strategy = Feedback(0.0, exclusive=1, target=goal)
    for made in range(1, reports):
        rising = LearningCurve(0, progress[:made], line[:made])
        strategy.decide([rising])
        assert strategy.decide([rising]).stopped == frozenset()
    stopped = strategy.decide([LearningCurve(0, progress[:-1], flat[:-1])]).stopped
    assert stopped == {0}
