"""Search files and the points of a search."""

import pytest

from fairlead.files.parsing.text import SourceText
from fairlead.files.search_file import parse_search_file
from fairlead.model.errors import InputError
from fairlead.model.submission.new_job import NewJob
from fairlead.model.submission.search import Choices, Range, Search
from fairlead.tuning.controller import check_job, trial_job
from fairlead.tuning.journal import Trial
from fairlead.tuning.samplers import points

TEXT = """
name: digits
metric: accuracy
trials: 50
target: 0.97
space:
  lr: {low: 1e-4, high: 1, log: true}
  layers: {low: 1, high: 3, whole: true}
  optimizer: [sgd, adam]
job:
  workload: small
  steps: 100
"""


def parse(text: str) -> Search:
    return parse_search_file(SourceText("search.yaml", text)).search


def test_a_search_file_has_a_search_and_a_job() -> None:
    read = parse_search_file(SourceText("search.yaml", TEXT))
    assert read.search == Search(
        name="digits",
        metric="accuracy",
        trials=50,
        target=0.97,
        space={
            "lr": Range(1e-4, 1.0, log=True),
            "layers": Range(1, 3, whole=True),
            "optimizer": Choices(("sgd", "adam")),
        },
    )
    assert read.job.values == {"workload": "small", "steps": 100}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("metric:", "metrics:", "metrics: unknown field 'metrics': did you mean 'metric'?"),
        ("trials: 50", "strategy: magic", "strategy: not allowed: 'magic'"),
        ("trials: 50\n", "", "trials: missing"),
        ("high: 1,", "high: 1e-5,", "high: not allowed: 1e-05: expected above low"),
        ("low: 1e-4", "low: 0", "low: not allowed: 0.0: expected above 0 with log"),
        ("[sgd, adam]", "sgd", "optimizer: neither a list nor a range"),
        ("[sgd, adam]", "[]", "optimizer: no values"),
        ("name: digits", "name: a/b", "name: not allowed: 'a/b'"),
        ("  steps: 100", "  step: 100", "step: unknown field 'step'"),
    ],
)
def test_mistakes_name_the_field_and_the_fix(old: str, new: str, message: str) -> None:
    assert old in TEXT
    with pytest.raises(InputError) as refused:
        parse(TEXT.replace(old, new))
    assert message in str(refused.value)


def test_random_points_depend_on_the_seed_and_the_number_only() -> None:
    search = parse(TEXT)
    fifty = points(search)
    assert len({point["lr"] for point in fifty}) == 50
    assert {point["layers"] for point in fifty} == {1, 2, 3}
    assert all(1e-4 <= float(point["lr"]) <= 1 for point in fifty)
    assert sum(float(point["lr"]) < 1e-2 for point in fifty) in range(15, 36)  # log-uniform
    assert points(parse(TEXT.replace("trials: 50", "trials: 5"))) == fifty[:5]
    assert points(parse(TEXT + "seed: 1\n"))[0] != fifty[0]


def test_a_grid_has_every_combination() -> None:
    space = {"lr": Range(1e-3, 0.1, log=True, points=3), "layers": Range(1, 2, whole=True)}
    search = Search(name="g", metric="m", sampler="grid", space=space)
    assert [tuple(point.values()) for point in points(search)] == [
        (lr, layers) for lr in (1e-3, 0.01, 0.1) for layers in (1, 2)
    ]
    endless = Search(name="g", metric="m", sampler="grid", space={"lr": Range(0, 1)})
    with pytest.raises(InputError, match="lr: a range without points in a grid"):
        points(endless)


def test_a_trial_is_a_job_with_its_values() -> None:
    search = parse(TEXT)
    words = ("train", "--lr={lr}", "{layers}", "{optimizer}")
    job = NewJob(command=words, steps=100)
    check_job(search, job)
    made = trial_job(search, job, Trial(7, {"lr": 0.1, "layers": 2, "optimizer": "sgd"}))
    assert made.command == ("train", "--lr=0.1", "2", "sgd")
    assert (made.name, made.multijob) == ("digits-7", "digits")
    assert made.environment == {"FAIRLEAD_TRIAL": "7"}
    assert made.hyperparameters == {"lr": "0.1", "layers": "2", "optimizer": "sgd"}
    for command, message in ((words[:3], "{optimizer} is not used"), ((*words, "{x}"), "{x} has")):
        with pytest.raises(InputError) as refused:
            check_job(search, NewJob(command=command, steps=100))
        assert message in str(refused.value)
    with pytest.raises(InputError, match="steps: missing"):
        check_job(search, NewJob(command=words))
