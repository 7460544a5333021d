"""Speeds learnt while jobs run: from data sheets, from other workloads, from other gangs."""

import math

import pytest

from fairlead.estimate.learned import (
    AFFINITY_SD,
    LEVEL_SD,
    SCALING,
    DataSheetLearner,
    stored_learner,
)
from fairlead.files.bundled import data_sheets
from fairlead.model.job import Job
from fairlead.model.speeds.believed import doubt_of
from fairlead.model.speeds.key import SpeedKey, scoped_workload
from fairlead.model.speeds.table import SpeedTable

LEARNER = DataSheetLearner.of(data_sheets())
_PARTS = ("-1g.18gb", "-3g.71gb", "")
EMPTY = SpeedTable({}, assumed=1.0, learner=LEARNER)


def workload(name: str, tenant: str = "a") -> str:
    return scoped_workload(tenant, name, "j")


def test_unknown_workload_runs_as_fast_as_data_sheets_suggest() -> None:
    slow, fast = EMPTY.speed("new", ["k80"]), EMPTY.speed("new", ["v100"])
    assert 2.5 < fast / slow < 5.0
    # The weakest device makes one step a second, and so does one without a data sheet.
    assert EMPTY.speed("new", ["m60"]) == EMPTY.speed("new", ["no-such-device"]) == 1.0
    assert EMPTY.speed("new", ["v100"] * 4) == pytest.approx(fast * 4**SCALING, rel=1e-4)
    assert doubt_of(EMPTY, SpeedKey("new", 1, "v100")) == LEVEL_SD


def test_mig_devices_have_their_part_of_the_whole_device() -> None:
    small, large, whole = (EMPTY.speed("w", [f"h200{part}"]) for part in _PARTS)
    assert whole / large == pytest.approx(7 / 3, rel=1e-4)
    assert large / small == pytest.approx(3.0, rel=1e-4)
    assert EMPTY.speed("w", ["unknown-3g.71gb"]) == 1.0


def test_own_measurement_sets_the_level_and_leaves_the_ratio() -> None:
    own = workload("cnn")
    table = EMPTY.with_measured({SpeedKey(own, 1, "k80"): 10.0})
    assert table.speed(own, ["k80"]) == 10.0
    assert doubt_of(table, SpeedKey(own, 1, "k80")) is None
    ratio = EMPTY.speed("new", ["v100"]) / EMPTY.speed("new", ["k80"])
    assert table.speed(own, ["v100"]) == pytest.approx(10.0 * ratio, rel=1e-4)
    doubt = doubt_of(table, SpeedKey(own, 1, "v100"))
    assert doubt is not None
    assert AFFINITY_SD < doubt < LEVEL_SD
    assert table.speed(own, ["k80"] * 2) == pytest.approx(10.0 * 2**SCALING, rel=1e-4)


def test_ratios_of_other_workloads_overrule_the_data_sheets_within_a_tenant() -> None:
    measured = {SpeedKey(workload("new"), 1, "k80"): 1.0}
    for i in range(12):
        measured[SpeedKey(workload(f"w{i}"), 1, "k80")] = 2.0 + i
        measured[SpeedKey(workload(f"w{i}"), 1, "v100")] = 1.5 * (2.0 + i)
    measured[SpeedKey(workload("new", "b"), 1, "k80")] = 1.0
    table = EMPTY.with_measured(measured)
    assert table.speed(workload("new"), ["v100"]) == pytest.approx(1.5, rel=0.1)
    assert table.speed(workload("new", "b"), ["v100"]) > 2.5
    keys = [SpeedKey(workload("new", tenant), 1, "v100") for tenant in "ab"]
    doubts = [doubt_of(table, key) or 0.0 for key in keys]
    assert doubts[0] < 0.75 * doubts[1]


def test_a_table_is_prior_knowledge_and_zero_still_means_impossible() -> None:
    entries = {SpeedKey("cnn", 1, "k80"): 4.0, SpeedKey("cnn", 1, "v100"): 0.0}
    table = SpeedTable(entries, assumed=1.0, learner=LEARNER)
    assert table.speed("cnn", ["v100"]) == 0.0
    assert table.speed("cnn", ["k80"]) == 4.0
    lied = table.with_measured({SpeedKey(workload("cnn"), 1, "k80"): 2.0})
    assert lied.speed(workload("cnn"), ["k80"]) == 2.0
    assert lied.speed("cnn", ["k80"]) == 4.0


def test_a_learner_made_from_its_document_estimates_the_same() -> None:
    again = DataSheetLearner(LEARNER.document())
    assert again == LEARNER
    measured = {SpeedKey(workload("x"), 2, "t4"): 3.0}
    speeds = [
        SpeedTable({}, assumed=1.0, learner=learner).with_measured(measured)
        for learner in (LEARNER, again)
    ]
    first, second = (table.speed(workload("x"), ["h100"] * 4) for table in speeds)
    assert first == second
    assert math.isfinite(first)


def test_batch_sizes_and_gangs_of_a_model_teach_each_other_within_a_tenant() -> None:
    measured = {
        SpeedKey(workload("bert-bs16"), 1, "v100"): 8.0,
        SpeedKey(workload("bert-bs32"), 1, "v100"): 5.0,
        SpeedKey(workload("bert-bs32"), 4, "v100"): 12.0,
    }
    table = EMPTY.with_measured(measured)
    new = Job(id="j", workload="bert-bs64", total_steps=1.0, tenant="a")
    assert table.workload_of(new) == workload("bert-bs64")
    row = table.row_of(new, ("v100", "k80"))
    assert 2.5 < row[0] < 4.0
    guessed = EMPTY.speed("x", ["v100"]) / EMPTY.speed("x", ["k80"])
    assert row[0] / row[1] == pytest.approx(guessed, rel=0.03)
    # A gang of four is 2.4 times as fast, not 4 ** SCALING times.
    assert 2.0 < table.speed(workload("bert-bs64"), ["v100"] * 4) / row[0] < 3.0
    doubt = doubt_of(table, SpeedKey(workload("bert-bs64"), 1, "v100"))
    assert doubt is not None
    assert doubt < AFFINITY_SD + 0.2
    foreign = Job(id="j", workload="bert-bs64", total_steps=1.0, tenant="b")
    assert table.row_of(foreign, ("k80",))[0] == EMPTY.speed("x", ["k80"])


def test_learners_of_earlier_versions_stay_additive() -> None:
    assert stored_learner({}) is None
    assert stored_learner({"strengths": LEARNER.document(), "process": True}) == LEARNER
    earlier = stored_learner({"strengths": LEARNER.document()})
    assert earlier is not None
    measured = {SpeedKey(workload("bert-bs16"), 1, "v100"): 8.0}
    table = SpeedTable({}, assumed=1.0, learner=earlier).with_measured(measured)
    other = Job(id="j", workload="bert-bs64", total_steps=1.0, tenant="a")
    assert table.workload_of(other) == "bert-bs64"
    assert table.row_of(other, ("k80",))[0] == EMPTY.speed("x", ["k80"])


def test_a_declared_speed_is_a_prior_that_measurements_overrule() -> None:
    def believed(table: SpeedTable, **declared: float) -> list[float]:
        job = Job(id="j", workload="cnn", tenant="a", total_steps=1, declared_speeds=declared)
        row: list[float] = table.row_of(job, ("v100", "p100", "k80")).tolist()
        return row

    guessed = believed(EMPTY)
    # One declared speed sets the level of all accelerators.
    assert believed(EMPTY, v100=40.0)[0] == pytest.approx(40.0, rel=0.01)
    assert believed(EMPTY, v100=40.0)[2] / 40.0 == pytest.approx(guessed[2] / guessed[0], rel=0.01)
    # Two are weighed against the ratio of the data sheets.
    fast, _, slow = believed(EMPTY, v100=40.0, k80=40.0)
    assert 1.2 < fast / slow < 0.7 * guessed[0] / guessed[2]
    measured = EMPTY.with_measured({SpeedKey(workload("cnn"), 1, "v100"): 40.0})
    honest, lied = (believed(measured, v100=40.0 * n, k80=10.0 * n) for n in (1, 2))
    assert honest[0] == lied[0] == 40.0
    assert lied[2] < 1.25 * honest[2]  # the factor on the V100 shows the exaggeration on the K80
    listed = SpeedTable({SpeedKey("cnn", 1, "k80"): 4.0}, assumed=1.0, learner=LEARNER)
    assert believed(listed, k80=8.0)[2] == 4.0
    own = Job(id="j", workload="cnn", tenant="a", total_steps=1, declared_speeds={"k80": 10.0})
    doubts = [doubt_of(EMPTY, SpeedKey("cnn", 1, "k80"), job) or 0.0 for job in (None, own)]
    assert 0.5 < doubts[1] < 0.5 * doubts[0]
