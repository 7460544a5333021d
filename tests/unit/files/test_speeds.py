"""Speed tables as CSV and as Gavel's JSON."""

import json
from pathlib import Path

import pytest
from tests.support.shared_data import needs_shared, shared

from fairlead.files import read_speeds, write_speeds
from fairlead.model.speeds.table import SpeedKey
from fairlead.testing.cpu_time import cpu_s

CSV = """\
workload,gang,accelerator,placement,partner,steps_per_s,partner_steps_per_s
LM,1,v100,,,10,
LM,2,v100,consolidated,,18,
LM,2,v100,spread,,12,
LM,1,v100,,GAN,6,2.5
LM,1,v100,,LM,6,4
GAN,1,v100,,,4,
GAN,1,k80,,,0,
"""


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "speeds.csv"
    path.write_text(CSV)
    return path


def test_csv_gives_alone_spread_and_packed_speeds(table: Path) -> None:
    speeds = read_speeds(table)
    assert speeds.speed("LM", ("v100",)) == 10
    assert speeds.speed("LM", ("v100", "v100")) == 18
    assert speeds.speed("LM", ("v100", "v100"), placement="spread") == 12
    assert speeds.speed("GAN", ("k80",)) == 0


def test_a_pair_row_gives_both_directions(table: Path) -> None:
    speeds = read_speeds(table)
    assert speeds.speed("LM", ("v100",), partner="GAN") == 6
    assert speeds.speed("GAN", ("v100",), partner="LM") == 2.5


def test_two_equal_jobs_have_the_mean_of_their_speeds(table: Path) -> None:
    assert read_speeds(table).speed("LM", ("v100",), partner="LM") == 5


def test_a_pair_may_be_given_from_both_sides_if_they_agree(tmp_path: Path) -> None:
    path = tmp_path / "speeds.csv"
    path.write_text(CSV + "GAN,1,v100,,LM,2.5,6\n")
    assert read_speeds(path).speed("GAN", ("v100",), partner="LM") == 2.5


def test_written_tables_read_back_the_same(table: Path, tmp_path: Path) -> None:
    speeds = read_speeds(table)
    write_speeds(speeds, tmp_path / "again.csv.gz")
    assert dict(read_speeds(tmp_path / "again.csv.gz").steps_per_s) == dict(speeds.steps_per_s)


def test_gavels_json_has_tuples_for_keys_and_null_for_alone(tmp_path: Path) -> None:
    entries = {"null": 3.0, "('LM (batch size 5)', 2)": [1.0, 2.0], "('GAN', 2)": [0.0, 0.0]}
    document = {
        "v100": {"('LM (batch size 5)', 2)": entries, "('GAN', 2)": {"null": 5}},
        "v100_unconsolidated": {"('LM (batch size 5)', 2)": {"null": 2.0}},
    }
    path = tmp_path / "table.txt"
    path.write_text(json.dumps(document))
    speeds = read_speeds(path).steps_per_s
    key = SpeedKey("LM (batch size 5)", 2, "v100")
    assert speeds == {
        key: 3.0,
        key._replace(placement="spread"): 2.0,
        key._replace(partner="LM (batch size 5)"): 1.5,
        key._replace(partner="GAN"): 0.0,
        SpeedKey("GAN", 2, "v100"): 5.0,
    }


@needs_shared
def test_gavels_table_reads_completely_and_fast() -> None:
    path = shared("data/gavel/simulation_throughputs.json.gz")
    speeds, took_s = cpu_s(lambda: read_speeds(path))
    assert len(speeds.workloads) == 26
    assert speeds.accelerators == ("k80", "p100", "v100")
    assert speeds.gangs["A3C"] == (1,)
    assert speeds.gangs["LM (batch size 5)"] == (1, 2, 4, 8)
    assert speeds.speed("Transformer (batch size 64)", ("v100",)) == 8.61775899193302
    assert speeds.speed("ResNet-50 (batch size 128)", ("k80",) * 2) == 0
    assert sum(key.partner is not None for key in speeds.steps_per_s) == 10338
    assert took_s < 0.25


@needs_shared
def test_gavels_pairs_agree_from_both_sides() -> None:
    speeds = read_speeds(shared("data/gavel/simulation_throughputs.json.gz"))
    raw = shared("data/gavel/physical_cluster_throughputs.json.gz")
    assert read_speeds(raw).workloads == speeds.workloads
    first, other = "ResNet-18 (batch size 16)", "ResNet-18 (batch size 32)"
    assert speeds.speed(first, ("k80",), partner=other) == 2.539979567443098
    assert speeds.speed(other, ("k80",), partner=first) == 3.1201925448827033


@needs_shared
def test_gavels_older_table_of_single_devices_is_readable() -> None:
    speeds = read_speeds(shared("data/gavel/oracle_throughputs_2019.json.gz"))
    assert speeds.speed("ResNet-50 (batch size 16)", ("p100",)) == 8.108348261420462
    assert not speeds.has_gang_speeds


@needs_shared
def test_gavels_table_survives_conversion_to_csv(tmp_path: Path) -> None:
    speeds = read_speeds(shared("data/gavel/simulation_throughputs.json.gz"))
    write_speeds(speeds, tmp_path / "speeds.csv")
    assert dict(read_speeds(tmp_path / "speeds.csv").steps_per_s) == dict(speeds.steps_per_s)
