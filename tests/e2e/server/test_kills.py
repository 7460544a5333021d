"""Real processes killed at named and random points; benchmarks/kills.py is the long version."""

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from tests.kills.deployment import KillSite
from tests.kills.invariants import (
    CheckpointMonitor,
    check_answer,
    check_end,
    wait_until,
)
from tests.kills.phases import Phases
from tests.kills.rig import KillRig
from tests.kills.train import chain

from fairlead.job import checkpoint


@pytest.fixture
def site(tmp_path: Path) -> Iterator[KillSite]:
    made = KillSite(tmp_path)
    yield made
    made.clean_up()


def test_no_step_is_lost_when_processes_are_killed(site: KillSite) -> None:
    run = KillRig(site, random.Random(0), wanted=10, wanted_points=3, most_steps=120)
    assert run.run() == []
    assert run.kills >= 10
    assert len(run.points) >= 3
    assert len(site.known) >= 6
    assert run.monitor.commits >= 20


class _PolicySite(KillSite):
    """A site without a server that lists the policies it should change to."""

    changes: ClassVar[list[str]] = []

    def change_policy(self, policy: str, round_s: float) -> None:
        del round_s
        self.changes.append(policy.partition(":")[0])


@pytest.mark.parametrize(
    ("copies", "expected"),
    [
        (False, ["gandiva", "gandiva", "gandiva"]),
        (True, ["gandiva", "gandiva", "hadare"]),
    ],
)
def test_phases_return_to_the_policy_that_resizes_gangs_and_to_copies(
    tmp_path: Path, copies: bool, expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_PolicySite, "changes", [])
    site, rng, at = _PolicySite(tmp_path, copies=copies, elastic=True), random.Random(0), [0.0]
    try:
        phases, active = Phases(site, now=lambda: at[0]), []
        for _ in range(3):
            phases.follow(rng)
            phases.follow(rng)
            active.append(phases.jobs.active)
            at[0] += 60.0
        assert (site.changes, active[:2]) == (expected, [3, 9])
        phases.favour("keeper.growth.ready")
        phases.follow(rng)
        assert (site.changes[3:], phases.jobs.active) == (["gandiva"], 3)
        phases.favour("server.merge.closed")
        phases.follow(rng)
        assert site.changes[4:] == expected[-1:]
    finally:
        site.clean_up()


# -- the checks detect errors --------------------------------------------------------------------


def _trace(home: Path, *lines: str) -> list[dict[str, Any]]:
    """Write the traces of a job of four steps; return the server's list of jobs."""
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


def test_a_step_repeated_from_a_checkpoint_is_no_error(tmp_path: Path) -> None:
    assert check_end(tmp_path, _trace(tmp_path, *GOOD, *AGAIN), {"j1": 4}) == []


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ((*GOOD, "5 begins 3 2", *AGAIN[1:]), "began at step 3 with 2"),
        ((*GOOD, "5 begins 4 4"), "began at step 4 with 4 of 3"),
        ((*GOOD, *AGAIN[:2]), "ended after step 3 of 4"),
        ((*GOOD, AGAIN[0], AGAIN[2]), "made step 3 instead of 2"),
        ((*GOOD, AGAIN[0], "1 makes 3", *AGAIN[1:]), "lease 1 made step 3 after lease 5"),
        ((*AGAIN, *GOOD), "lease 1 began after lease 5"),
    ],
)
def test_steps_out_of_order_are_detected(
    tmp_path: Path, lines: tuple[str, ...], message: str
) -> None:
    problems = check_end(tmp_path, _trace(tmp_path, *lines), {"j1": 4})
    assert any(message in problem for problem in problems), problems


def test_lost_jobs_and_invented_steps_are_detected(tmp_path: Path) -> None:
    jobs = _trace(tmp_path, *GOOD)
    assert "j2 was acknowledged but is lost" in check_answer(tmp_path, jobs, {"j1": 4, "j2": 9})
    assert "j1: 4.0 steps are counted, 3 were made" in check_answer(tmp_path, jobs, {"j1": 4})


def test_a_checkpoint_of_a_fenced_lease_is_detected(tmp_path: Path) -> None:
    directory = tmp_path / "j1/checkpoint"
    checkpoint.raise_fence(str(directory), 7)
    watch = CheckpointMonitor(tmp_path)
    assert wait_until(lambda: watch.seen and watch.seen["j1"].fence == 7, 90.0)
    (directory / "latest.json").write_text('{"lease": 3, "steps": 5, "files": ["3-5.0.ckpt"]}')
    watch.stop()
    assert watch.complaints == ["j1: lease 3 committed step 5 below fence 7"]
