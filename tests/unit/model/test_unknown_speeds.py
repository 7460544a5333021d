"""Unmeasured speeds are unknown: estimated and marked as assumed, never 0."""

import json
import math
import statistics
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fairlead.cli.main import app
from fairlead.cli.research.caveats import warn_if_assumed
from fairlead.estimate.learned import DataSheetLearner
from fairlead.files import parse_cluster, read_speeds
from fairlead.files.bundled import data_sheets
from fairlead.files.speeds.prior import simulated_speeds
from fairlead.model.capabilities import Capabilities
from fairlead.model.errors import InputError
from fairlead.model.job import Job
from fairlead.model.speeds.key import SpeedKey, scoped_workload
from fairlead.model.speeds.table import SpeedTable
from fairlead.model.submission.admission import Admission

TABLE = SpeedTable(
    {
        SpeedKey("cnn", 1, "v100"): 8.0,
        SpeedKey("cnn", 1, "k80"): 2.0,
        SpeedKey("lstm", 1, "v100"): 6.0,
        SpeedKey("lstm", 1, "k80"): 0.0,
        SpeedKey("gan", 1, "v100"): 3.0,
    }
)


def test_accelerator_that_the_table_lacks_is_estimated_from_the_known_ones() -> None:
    assert TABLE.speed("cnn", ["h100"]) == pytest.approx(5.0)
    assert TABLE.speed("lstm", ["h100"]) == pytest.approx(6.0)
    assert TABLE.speed("cnn", ["h100"] * 2) == pytest.approx(10.0)
    assert TABLE.source_of("cnn", 1, "h100") == "assumed"


def test_measured_workloads_scale_the_estimates_of_the_same_tenant() -> None:
    cnn, gan = (scoped_workload("own", name, "j") for name in ("cnn", "gan"))
    table = TABLE.with_measured({SpeedKey(cnn, 1, "h100"): 24.0, SpeedKey(gan, 1, "v100"): 5.0})
    assert table.speed(cnn, ["h100"]) == 24.0
    assert table.source_of(cnn, 1, "h100") == "measured"
    assert table.speed(gan, ["h100"]) == pytest.approx(5.0 * 24.0 / 8.0)
    assert table.source_of(gan, 1, "h100") == "assumed"
    # The reports of a tenant change nothing for other tenants.
    assert table.speed("gan", ["h100"]) == TABLE.speed("gan", ["h100"]) == 3.0
    jobs = [Job(id="j", workload="cnn", total_steps=1.0, tenant=name) for name in ("own", "other")]
    rows = [table.row_of(job, ("h100", "k80")).tolist() for job in jobs]
    assert rows == [[24.0, 2.0], [5.0, 2.0]]


def test_zero_in_the_table_means_impossible_and_a_missing_row_only_where_speeds_are_exact() -> (
    None
):
    assert TABLE.speed("lstm", ["k80"]) == 0.0
    assert TABLE.source_of("lstm", 1, "k80") == "table"
    assert TABLE.speed("gan", ["k80"]) == 0.0
    real = SpeedTable(TABLE.steps_per_s, assumed=1.0)
    assert real.speed("lstm", ["k80"]) == 0.0
    assert real.speed("gan", ["k80"]) == pytest.approx(3.0 * 2.0 / 8.0)
    assert real.source_of("gan", 1, "k80") == "assumed"
    earlier = SpeedTable(TABLE.steps_per_s, assumed=1.0, estimates=False)
    assert earlier.speed("gan", ["k80"]) == earlier.speed("cnn", ["h100"]) == 0.0
    assert earlier.speed("new", ["h100"]) == 1.0


def test_impossible_workload_is_refused_although_it_is_possible_elsewhere() -> None:
    cluster = parse_cluster("k80=2")
    admission = Admission(cluster, TABLE, cluster.counts, Capabilities())
    with pytest.raises(InputError, match="speed 0 on k80 for 'lstm'"):
        admission.check(Job(id="j", workload="lstm", total_steps=1.0))


def test_bundled_workloads_run_on_an_accelerator_that_the_table_lacks(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("job_id,arrival_s,workload,gang,total_steps\na,0,LSTM,1,10\nb,5,GRU,2,10\n")
    done = CliRunner().invoke(
        app, ["simulate", "--cluster", "h100=8", "--trace", str(trace), "--json"]
    )
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["unfinished"] == 0
    note = " ".join(done.stderr.split())
    assert "no speeds on h100: assumed" in note
    assert "and the data sheets" in note


def test_an_accelerator_in_other_letters_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    warn_if_assumed(TABLE, parse_cluster("V100=1,k80=1"))
    note = " ".join(capsys.readouterr().err.split())
    assert "no speeds on V100: assumed" in note
    assert note.endswith(", or use its names: v100")


def test_simulated_accelerators_differ_as_their_data_sheets_do() -> None:
    newer = simulated_speeds("gandiva-fair", ("t4", "v100", "a10g", "a100", "h100"))
    for workload in newer.workloads:
        t4, a10g, a100, h100 = (newer.speed(workload, [n]) for n in ("t4", "a10g", "a100", "h100"))
        assert t4 < a10g < a100 < h100
        assert newer.source_of(workload, 1, "t4") == "assumed"
        assert newer.speed(workload, ["t4"] * 3) == pytest.approx(3 * t4)
    known = read_speeds("gandiva-fair")
    assert simulated_speeds("gandiva-fair", known.accelerators) == known
    unsheeted = simulated_speeds("gandiva-fair", ("v100", "no-such-gpu"))
    assert unsheeted == known, "means are estimated where there is no data sheet"


@pytest.mark.parametrize(
    ("name", "largest"),
    [
        *((name, 2.5) for name in ("gandiva-fair", "mlperf-2020", "mlperf-2023", "mlperf-2025")),
        ("h200", 4.6),  # small batches are as fast on a seventh of it as on all of it
    ],
)
def test_speeds_left_out_of_a_table_are_estimated_within_a_factor(
    name: str, largest: float
) -> None:
    table, learner = read_speeds(name), DataSheetLearner.of(data_sheets())
    off = [
        abs(math.log(without(table, a, learner).speed(workload, [a]) / table.speed(workload, [a])))
        for a in table.accelerators
        for workload in table.workloads
    ]
    assert math.exp(statistics.median(off)) < 1.35
    assert math.exp(max(off)) < largest


def without(table: SpeedTable, accelerator: str, learner: DataSheetLearner) -> SpeedTable:
    speeds = table.steps_per_s.items()
    kept = {key: speed for key, speed in speeds if key.accelerator != accelerator}
    return SpeedTable(kept, learner=learner)
