"""Speeds of consolidated and spread gangs are believed apart and teach each other."""

import numpy as np
import pytest

from fairlead.core.event_log import decode_event, encode_event
from fairlead.estimate.learned import DataSheetLearner
from fairlead.files import parse_cluster
from fairlead.files.bundled import data_sheets
from fairlead.model import events as ev
from fairlead.model.speeds.believed import believed_speed, doubt_of
from fairlead.model.speeds.key import PLACEMENTS, Consolidation, SpeedKey, scoped_workload
from fairlead.model.speeds.measured import MeasuredSpeed, MeasuredSpeeds
from fairlead.model.speeds.placement import fits_one_node, placement_of
from fairlead.model.speeds.table import SpeedTable

LEARNING = SpeedTable({}, assumed=1.0, learner=DataSheetLearner.of(data_sheets()))


def name(workload: str = "w", tenant: str = "a") -> str:
    return scoped_workload(tenant, workload, "")


def key(
    placement: Consolidation, workload: str = "w", gang: int = 2, accelerator: str = "v100"
) -> SpeedKey:
    return SpeedKey(name(workload), gang, accelerator, placement)


def measured(table: SpeedTable, speeds: dict[SpeedKey, float]) -> SpeedTable:
    """Return the beliefs after these measurements, consolidated ones on one node."""
    known = MeasuredSpeeds()
    for at, (one, speed) in enumerate(speeds.items()):
        known.record(one, speed, at, on_one_node=one.placement == "consolidated")
    return known.in_place_of(table)


def both(table: SpeedTable, one: SpeedKey) -> tuple[float, float]:
    """Return the believed speeds of a gang, consolidated and spread."""
    near, far = (
        table.speed(one.workload, (one.accelerator,) * one.gang, placement=placement)
        for placement in PLACEMENTS
    )
    return near, far


def test_gang_is_spread_if_it_holds_more_nodes_than_it_needs() -> None:
    cluster = parse_cluster("v100=8/4,k80=4/2")
    assert [
        placement_of(cluster, np.array(devices))
        for devices in ([0], [0, 3], [3, 4], [0, 1, 2, 3, 4], range(8), [8, 9, 10], [8, 10])
    ] == ["consolidated", "consolidated", "spread", *["consolidated"] * 3, "spread"]
    assert [fits_one_node(cluster, "k80", gang) for gang in (1, 2, 3)] == [True, True, False]


def test_consolidated_and_spread_speeds_are_believed_apart() -> None:
    table = measured(LEARNING, {key("consolidated"): 40.0, key("spread"): 20.0})
    assert both(table, key("consolidated")) == (40.0, 20.0)
    assert [table.source_of(*key(p)[:4]) for p in PLACEMENTS] == ["measured", "measured"]
    one = name()
    assert table.speed(one, ["v100"]) == table.speed(one, ["v100"], placement="spread")


def test_ratio_of_one_gang_teaches_the_others_and_other_workloads_of_the_tenant_alone() -> None:
    table = measured(LEARNING, {key("consolidated"): 40.0, key("spread"): 20.0})
    near, far = both(table, key("consolidated", gang=4))
    assert far / near == pytest.approx(0.5, rel=0.1)
    near, far = both(table, key("consolidated", accelerator="k80"))
    assert far / near == pytest.approx(0.5, rel=0.1)
    near, far = both(table, key("consolidated", "other"))
    assert 0.5 < far / near < 0.75
    foreign = key("consolidated")._replace(workload=name("w", "b"))
    near, far = both(table, foreign)
    assert near == far


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_speed_of_one_placement_teaches_the_other_by_the_tables_ratio(
    placement: Consolidation,
) -> None:
    listed = {SpeedKey("w", 2, "v100"): 100.0, SpeedKey("w", 2, "v100", "spread"): 60.0}
    speed = {"consolidated": 50.0, "spread": 30.0}[placement]
    table = measured(SpeedTable(listed), {key(placement): speed})
    assert both(table, key(placement)) == (50.0, 30.0)
    sources = {p: table.source_of(*key(p)[:4]) for p in PLACEMENTS}
    assert sources.pop(placement) == "measured"
    assert [*sources.values()] == ["assumed"]


def test_spread_speed_alone_is_the_estimate_of_the_consolidated_one() -> None:
    table = measured(LEARNING, {key("spread"): 20.0})
    assert both(table, key("consolidated")) == (20.0, 20.0)
    believed = believed_speed(table, {}, key("consolidated"))
    assert believed.source == "assumed"
    assert believed.doubt is not None
    assert believed.doubt > 0.3
    # It is known of the workload, so speeds elsewhere rest on it, too.
    assert 5.0 < table.speed(name(), ["v100"]) < 20.0
    far = doubt_of(table, key("spread", gang=4))
    near = doubt_of(table, key("consolidated", gang=4))
    assert far is not None
    assert near is not None
    assert far > near


def test_consolidated_speed_of_the_table_stays_where_it_lists_no_spread_one() -> None:
    table = measured(SpeedTable({SpeedKey("w", 2, "v100"): 40.0}), {key("spread"): 20.0})
    assert both(table, key("consolidated")) == (40.0, 20.0)
    assert table.source_of(*key("consolidated")[:3]) == "table"


def test_measurement_without_a_placement_counts_for_all_as_in_earlier_versions() -> None:
    known = MeasuredSpeeds()
    known.record(key("consolidated"), 30.0, 1.0)
    listed = SpeedTable({SpeedKey("w", 2, "v100", "spread"): 60.0}, assumed=1.0)
    assert both(known.in_place_of(listed), key("consolidated")) == (30.0, 30.0)
    assert known.saved() == [(name(), 2, "v100", 30.0, 1.0)]


def test_placements_are_saved_and_a_gang_that_does_not_fit_has_none() -> None:
    known, restored = MeasuredSpeeds(), MeasuredSpeeds()
    known.record(key("consolidated"), 40.0, 1.0, on_one_node=True)
    known.record(key("spread"), 20.0, 2.0)
    restored.restore(known.saved())
    assert restored.by_key == known.by_key
    assert restored.on_one_node == known.on_one_node == {key("consolidated")}
    known.record(key("consolidated"), 0.0, 3.0)
    assert known.by_key == {key("consolidated"): MeasuredSpeed(0.0, 3.0)}
    assert both(known.in_place_of(LEARNING), key("consolidated")) == (0.0, 0.0)


def test_event_has_the_placement_of_a_gang_alone_and_old_lines_have_none() -> None:
    gang, device = key("spread"), key("consolidated", gang=1)
    pair = key("consolidated")._replace(partner=name("v"))
    events = [ev.SpeedMeasured.of(1.0, one, 2.0) for one in (gang, device, pair)]
    assert [event.placement for event in events] == ["spread", None, None]
    lines = [encode_event(event) for event in events]
    assert ["placement" in line for line in lines] == [True, False, False]
    assert [decode_event(line, dict) for line in lines] == events
