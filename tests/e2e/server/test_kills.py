"""Real processes killed at named and at random points; the long version is benchmarks/kills.py."""

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.kills.deployment import Site
from tests.kills.invariants import (
    CheckpointMonitor,
    check_answer,
    check_end,
    wait_until,
)
from tests.kills.rig import KillRig
from tests.kills.train import chain

from fairlead.job import checkpoint


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path)
    yield made
    made.clean_up()


def test_nothing_is_lost_whoever_dies(site: Site) -> None:
    run = KillRig(site, random.Random(0), wanted=10, most_steps=120)
    assert run.run() == []
    assert run.kills >= 10
    assert len(run.points) >= 3
    assert len(site.known) >= 6
    assert run.watch.commits >= 20


# -- those who watch see what is wrong ------------------------------------------------------------


def _trace(home: Path, *lines: str) -> list[dict[str, Any]]:
    """Leave the traces of a job of four steps; return what the server says of it."""
    for name in ("steps", "results"):
        (home / name).mkdir()
    (home / "steps/j1.0").write_text("".join(f"{line}\n" for line in lines))
    value = 0
    for step in range(4):
        value = chain(value, step)
    (home / "results/j1.0").write_text(json.dumps({"made": 4, "chain": value}))
    return [{"id": "j1", "state": "finished", "steps_done": 4.0, "total_steps": 4, "gang": 1}]


GOOD = ("1 begins 0 0", "1 makes 0", "1 makes 1", "1 makes 2")
AGAIN = ("5 begins 2 2", "5 makes 2", "5 makes 3")


def test_a_step_made_again_after_a_checkpoint_is_right(tmp_path: Path) -> None:
    assert check_end(tmp_path, _trace(tmp_path, *GOOD, *AGAIN), {"j1": 4}) == []


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ((*GOOD, "5 begins 3 2", *AGAIN[1:]), "began at step 3 with 2"),
        ((*GOOD, "5 begins 4 4"), "began at step 4 with 4 of 3"),
        ((*GOOD, *AGAIN[:2]), "ended after step 3 of 4"),
        ((*GOOD, AGAIN[0], AGAIN[2]), "made step 3 instead of 2"),
        ((*GOOD, AGAIN[0], "1 makes 3", *AGAIN[1:]), "lease 1 made step 3 after lease 5"),
        ((*AGAIN, *GOOD), "lease 1 began after lease 5"),
    ],
)
def test_steps_out_of_order_are_found(tmp_path: Path, lines: tuple[str, ...], said: str) -> None:
    found = check_end(tmp_path, _trace(tmp_path, *lines), {"j1": 4})
    assert any(said in problem for problem in found), found


def test_lost_jobs_and_steps_that_nobody_made_are_found(tmp_path: Path) -> None:
    jobs = _trace(tmp_path, *GOOD)
    assert "j2 was acknowledged and is lost" in check_answer(tmp_path, jobs, {"j1": 4, "j2": 9})
    assert "j1: 4.0 steps are counted, 3 were made" in check_answer(tmp_path, jobs, {"j1": 4})


def test_a_checkpoint_behind_the_fence_is_found(tmp_path: Path) -> None:
    directory = tmp_path / "j1/checkpoint"
    checkpoint.raise_fence(str(directory), 7)
    watch = CheckpointMonitor(tmp_path)
    assert wait_until(lambda: watch.seen and watch.seen["j1"].fence == 7, 10.0)
    (directory / "latest.json").write_text('{"lease": 3, "steps": 5, "files": []}')
    watch.stop()
    assert watch.complaints == ["j1: lease 3 committed step 5 behind fence 7"]
