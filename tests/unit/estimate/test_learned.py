"""Speeds learnt while jobs run: from data sheets, from other workloads, from other gangs."""

import math

import pytest

from fairlead.estimate.learned import AFFINITY_SD, LEVEL_SD, SCALING, DataSheetLearner
from fairlead.files.bundled import data_sheets
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
    assert EMPTY.doubt("new", 1, "v100") == LEVEL_SD


def test_mig_devices_have_their_part_of_the_whole_device() -> None:
    small, large, whole = (EMPTY.speed("w", [f"h200{part}"]) for part in _PARTS)
    assert whole / large == pytest.approx(7 / 3, rel=1e-4)
    assert large / small == pytest.approx(3.0, rel=1e-4)
    assert EMPTY.speed("w", ["unknown-3g.71gb"]) == 1.0


def test_own_measurement_sets_the_level_and_leaves_the_ratio() -> None:
    own = workload("cnn")
    table = EMPTY.with_measured({SpeedKey(own, 1, "k80"): 10.0})
    assert table.speed(own, ["k80"]) == 10.0
    assert table.doubt(own, 1, "k80") is None
    ratio = EMPTY.speed("new", ["v100"]) / EMPTY.speed("new", ["k80"])
    assert table.speed(own, ["v100"]) == pytest.approx(10.0 * ratio, rel=1e-4)
    doubt = table.doubt(own, 1, "v100")
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
    doubts = [table.doubt(workload("new", tenant), 1, "v100") or 0.0 for tenant in "ab"]
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
