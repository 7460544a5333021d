"""Population-based training: clones of good trials in place of poor ones."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fairlead.model.errors import InputError
from fairlead.model.submission.search import Choices, Parameter, Range, Search
from fairlead.tuning.journal import Journal
from fairlead.tuning.population import simulate_population
from fairlead.tuning.samplers import Point, perturbed_point
from fairlead.tuning.strategies import PopulationBased
from fairlead.tuning.strategies.base import LearningCurve


def curve(trial: int, last: float, reports: int = 10, judged: int = 0) -> LearningCurve:
    progress = [(i + 1) / 100 for i in range(reports)]
    return LearningCurve(trial, progress, [last] * reports, judged=judged)


def test_the_worst_are_replaced_by_clones_of_the_best_once_per_interval() -> None:
    population = [curve(trial, trial / 10) for trial in range(8)]
    decision = PopulationBased(0.1, 0.25).decide(population)
    assert set(decision.replaced) == {0, 1}
    assert set(decision.replaced.values()) <= {6, 7}
    assert decision.judged == dict.fromkeys(range(8), 1)
    again = [curve(trial, trial / 10, judged=1) for trial in range(8)]
    assert PopulationBased(0.1, 0.25).decide(again).judged == {}
    stopped = [replace(one, has_ended=one.trial < 2) for one in population]
    clones = [LearningCurve(8 + trial, [], [], replaces=trial) for trial in (0, 1)]
    assert PopulationBased(0.1, 0.25).decide([*stopped, *clones]).replaced == {}
    assert set(PopulationBased(0.1, 0.25).decide(stopped).replaced) == {2}
    unready = [curve(trial, trial / 10, reports=9) for trial in range(8)]
    assert PopulationBased(0.1, 0.25).decide(unready).judged == {}


def test_a_trial_is_compared_at_its_own_progress_and_complete_trials_are_not_cloned() -> None:
    ahead = LearningCurve(0, [0.1, 0.2], [0.1, 0.9], judged=2)
    behind = curve(1, 0.2)
    assert PopulationBased(0.1, 0.5).decide([ahead, behind]).replaced == {}
    worse = curve(1, 0.05)
    assert PopulationBased(0.1, 0.5).decide([ahead, worse]).replaced == {1: 0}
    complete = LearningCurve(0, [0.1, 1.0], [0.1, 0.9], has_ended=True)
    assert PopulationBased(0.1, 0.5).decide([complete, worse]).replaced == {}
    stopped = LearningCurve(0, [0.1, 0.2], [0.1, 0.9], has_ended=True)
    assert PopulationBased(0.1, 0.5).decide([stopped, worse]).replaced == {}


def test_a_clone_changes_only_the_hyperparameters_that_may_change() -> None:
    layers = Range(1, 4, whole=True)
    space: dict[str, Parameter] = {
        "lr": Range(1e-4, 1.0, log=True),
        "layers": layers,
        "optimizer": Choices(("sgd", "adam", "lamb")),
    }
    search = Search(name="s", metric="m", space=space, trials=4, strategy="pbt")
    source: Point = {"lr": 0.1, "layers": 2, "optimizer": "adam"}
    clones = [perturbed_point(search, source, number) for number in range(40)]
    assert clones == [perturbed_point(search, source, number) for number in range(40)]
    assert {(clone["layers"], clone["optimizer"]) for clone in clones} == {(2, "adam")}
    moved = [clone["lr"] for clone in clones if clone["lr"] in (0.08, 0.12)]
    assert {*moved} == {0.08, 0.12}
    assert 20 <= len(moved) < 40  # the others are drawn again
    every = replace(search, perturb=("layers", "optimizer"))
    clones = [perturbed_point(every, source, number) for number in range(40)]
    assert {clone["lr"] for clone in clones} == {0.1}
    assert {clone["layers"] for clone in clones} >= {1, 3}
    assert {clone["optimizer"] for clone in clones} == {"sgd", "adam", "lamb"}
    assert layers.beside(4, up=True) == 4


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"quantile": 0.7}, "quantile: not allowed: 0.7: expected above 0 and at most 0.5"),
        ({"perturb": ("lr",)}, "perturb: not allowed: 'lr': expected one of h"),
        ({"parallel": 2}, "parallel: not used by pbt: expected trials"),
        ({"interval_steps": 0}, "interval_steps: not allowed: 0: expected 1 to"),
    ],
)
def test_mistakes_name_the_field(wrong: dict[str, Any], message: str) -> None:
    space = {"h": Choices((0,))}
    fields: dict[str, Any] = {"name": "s", "metric": "m", "space": space, "trials": 2}
    with pytest.raises(InputError) as refused:
        Search(**{**fields, "strategy": "pbt", **wrong})
    assert str(refused.value).startswith(message)


REPORTS = 200
Progress = tuple[int, float]
"""reports made, and the score"""


def train(state: Progress, point: Point) -> tuple[Progress, float]:
    """Improve the score if the hyperparameter is near its best value, which rises from 0 to 1."""
    made, score = state
    score += max(1.0 - 4.0 * abs(float(point["h"]) - made / REPORTS), 0.0)
    return (made + 1, score), score


@pytest.mark.parametrize("seed", range(3))
def test_a_population_finds_a_schedule_that_no_constant_value_has(seed: int) -> None:
    best = {}
    for strategy in ("pbt", "none"):
        search = Search(
            name="schedule",
            metric="score",
            space={"h": Range(0.0, 1.0)},
            trials=12,
            strategy=strategy,
            seed=seed,
            interval_steps=10,
        )
        trials = simulate_population(search, (0, 0.0), train, REPORTS)
        assert all(trial.reports <= REPORTS for trial in trials)
        assert any(trial.source is not None for trial in trials) == (strategy == "pbt")
        best[strategy] = max(value for trial in trials for value in trial.values)
    assert best["none"] <= REPORTS / 4.0 + 1.0
    assert best["pbt"] > 1.5 * best["none"]


def test_a_journal_of_an_earlier_version_resumes(tmp_path: Path) -> None:
    search = Search(name="s", metric="m", space={"h": Choices((0, 1))}, trials=2)
    path = tmp_path / "s.jsonl"
    Journal.create(path, search, ("train",)).close()
    old = path.read_text().replace(', "interval_steps": null, "quantile": 0.25', "")
    assert old != path.read_text()
    path.write_text(old)
    Journal.resume(path, search, ("train",)).close()
    other = Search(name="s", metric="m", space={"h": Choices((0, 1))}, trials=2, quantile=0.5)
    with pytest.raises(InputError, match="belongs to another search"):
        Journal.resume(path, other, ("train",))
