"""Event logs of simulations are sufficient for replay."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fairlead.cli.main import app
from fairlead.cli.shared.errors import run
from fairlead.core import Scheduler
from fairlead.mechanisms.factory import create_mechanism
from fairlead.model.cluster import Accelerator, Cluster
from fairlead.model.events import JobSubmitted
from fairlead.model.job import Job
from fairlead.model.speeds.table import SpeedKey, SpeedTable
from fairlead.sim.run_log import EventLog, replay_file


def test_replayed_scheduler_has_the_logged_beliefs(tmp_path: Path) -> None:
    beliefs = SpeedTable(
        {
            SpeedKey("a", 1, "v100"): 4.0,
            SpeedKey("a", 2, "v100"): 7.0,
            SpeedKey("a", 2, "v100", "spread"): 5.0,
            SpeedKey("a", 1, "v100", partner="b"): 3.0,
            SpeedKey("b", 1, "v100"): 2.0,
            SpeedKey("b", 1, "v100", partner="a"): 1.5,
        },
        assumed=1.0,
    )
    cluster = Cluster.of({"v100": 2}, details={"v100": Accelerator("v100", memory_gib=16.0)})
    mechanism: Any = create_mechanism("max-min:packed", None, None)
    logged: Scheduler[Any] = Scheduler(cluster, beliefs, mechanism)
    path = tmp_path / "log.jsonl"
    with path.open("w") as file:
        log = EventLog(
            file, cluster, beliefs, policy="max-min:packed", mechanism=None, round_s=None
        )
        event = JobSubmitted(0.0, Job(id="j", workload="a", total_steps=10.0))
        log.write(event)
        logged.handle(event)
        log.close(logged)
    result = replay_file(path)
    assert result.same
    assert result.scheduler.beliefs == beliefs
    assert result.scheduler.cluster.memory_gib.tolist() == [16.0]


def test_the_log_of_a_run_whose_policy_was_ignored_replays(tmp_path: Path) -> None:
    cluster, beliefs = Cluster.of({"v100": 1}), SpeedTable({SpeedKey("a", 1, "v100"): 4.0})
    mechanism: Any = create_mechanism("srtf")
    scheduler: Scheduler[Any] = Scheduler(cluster, beliefs, mechanism)
    path = tmp_path / "log.jsonl"
    with path.open("w") as file:
        log = EventLog(file, cluster, beliefs, policy="fifo", mechanism="srtf", round_s=None)
        log.close(scheduler)
    assert replay_file(path).same


@pytest.mark.parametrize(
    ("kept", "message"),
    [
        (lambda lines: lines[:-3], "no end line"),
        (lambda lines: lines[:1], "no end line"),
        (lambda lines: [*lines[:-3], lines[-1]], "replay differs from the run"),
    ],
)
def test_incomplete_log_is_rejected_with_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    kept: Callable[[list[str]], list[str]],
    message: str,
) -> None:
    path = tmp_path / "log.jsonl"
    monkeypatch.setattr(sys, "argv", ["fairlead", "simulate", "--log", str(path), "--json"])
    assert run(app) == 0
    path.write_text("".join(kept(path.read_text().splitlines(keepends=True))))
    capsys.readouterr()
    for words, shown in ((["--json"], '"same":false'), ([], "events lead to state")):
        monkeypatch.setattr(sys, "argv", ["fairlead", "replay", str(path), *words])
        assert run(app) == 1
        output = capsys.readouterr()
        assert shown in output.out
        assert message in output.err
        assert output.err.endswith("[input]\n")
        assert output.err.count("\n") == 1
