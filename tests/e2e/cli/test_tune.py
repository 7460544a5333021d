"""Searches on a real server: kills in the middle, early stops, one entitlement."""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import optuna
import pytest
from tests.e2e.support.live_server import LiveServer, json_output

import fairlead
from fairlead.client import Client
from fairlead.submitted_job import SubmittedJob
from fairlead.tuning.controller import SearchResult

TRIAL = """
import sys
from fairlead import job

run, state = job.attach(), {"score": 0.0}
run.register(state=state)
for step in run.steps(range(40)):
    state["score"] += (float(sys.argv[1]) - state["score"]) / 8
    run.report(score=state["score"])
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    made = LiveServer(tmp_path_factory.mktemp("tune"), devices="v100=2", round_s=1.0)
    (made.root / "trial.py").write_text(TRIAL)
    (made.root / "population.py").write_text(POPULATION)
    made.start()
    yield made
    made.clean_up()


POPULATION = """
import sys
import time
from fairlead import job

run, state = job.attach(), {"score": 0.0}
run.register(state=state)
print("begins at", run.steps_done, flush=True)
for step in run.steps(range(100_000)):
    state["score"] += (float(sys.argv[1]) - state["score"]) / 8
    run.report(score=state["score"])
    if step % 10 == 9:
        run.checkpoint()
    time.sleep(0.01)
"""


UPWARDS = 82
"""seed with which the first six clones have the next greater height"""


class Killed(BaseException):
    """Stands for SIGKILL at a chosen instant."""


class KilledAfterSubmission(Client):
    """A client whose process dies between the server's answer and the journal's next line."""

    def post(self, path: str, body: Mapping[str, object] | None = None) -> Any:
        super().post(path, body)
        raise Killed


class KilledAfterClone(Client):
    """A client whose process dies when the server has accepted a clone."""

    def post(self, path: str, body: Mapping[str, object] | None = None) -> Any:
        answer = super().post(path, body)
        if body is not None and "start_from" in body:
            raise Killed
        return answer


class SlowReader(Client):
    """A client that learns of a trial's last metric first, and of its end at the next request."""

    def __init__(self, url: str, token: str) -> None:
        super().__init__(url, token)
        self.seen: set[str] = set()

    def jobs(self, **filters: Any) -> list[SubmittedJob]:
        listed = [self.wait(job.id, timeout_s=60.0) for job in super().jobs(**filters)]
        first = {job.id for job in listed} - self.seen
        self.seen |= first
        return [SubmittedJob(job, state="running") if job.id in first else job for job in listed]


def run_once(
    server: LiveServer, client: Client, program: str = "trial.py", **settings: Any
) -> SearchResult:
    try:
        return fairlead.tune(
            [program, "{height}"],
            **{
                "name": "peak",
                "space": {"height": [0.3, 0.9, 0.5, 0.7]},
                "metric": "score",
                "sampler": "grid",
                "strategy": "none",
                "parallel": 3,
                "job": {"directory": str(server.root), "workload": "small", "steps": 40},
                "journal": server.root / "peak.jsonl",
                "client": client,
                "poll_s": 0.1,
                **settings,
            },
        )
    finally:
        client.close()


def address(server: LiveServer) -> tuple[str, str]:
    return f"http://127.0.0.1:{server.port}", (server.data / "admin.token").read_text()


def test_a_search_loses_and_repeats_no_trial_when_controller_and_server_are_killed(
    server: LiveServer,
) -> None:
    for resume in (False, True, True):
        with pytest.raises(Killed):
            run_once(server, KilledAfterSubmission(*address(server)), resume=resume)
    server.kill()
    server.start()
    with (server.root / "peak.jsonl").open("a") as journal:
        journal.write('{"trial": 3, "poi')  # a line that the kill cut off
    result = run_once(server, server.client, resume=True)
    assert [trial.point["height"] for trial in result.trials] == [0.3, 0.9, 0.5, 0.7]
    assert {trial.state for trial in result.trials} == {"finished"}
    jobs = server.client.jobs(multijob="peak")
    assert sorted(job.id for job in jobs) == sorted(trial.job or "" for trial in result.trials)
    assert len(jobs) == 4
    assert result.best is not None
    assert result.best.number == 1
    assert result.best.best == pytest.approx(0.9, abs=0.01)
    again = run_once(server, server.client, resume=True)
    assert again.reason == "all trials have ended"
    assert len(server.client.jobs(multijob="peak")) == 4


def test_trials_may_end_before_they_are_stopped(server: LiveServer) -> None:
    """The strategy and the target stop trials that have ended since they were read."""
    result = run_once(
        server,
        SlowReader(*address(server)),
        name="late",
        journal=server.root / "late.jsonl",
        strategy="asha",
        target=0.8,
    )
    assert result.reason == "target reached"
    assert {trial.state for trial in result.trials} == {"finished"}


def test_a_population_clones_its_best_also_when_the_controller_is_killed(
    server: LiveServer,
) -> None:
    """Only a clone has the height that reaches the target."""
    job = {"directory": str(server.root), "workload": "population", "steps": 100_000}
    settings: dict[str, Any] = {
        "program": "population.py",
        "name": "population",
        "space": {"height": [0.2, 1.0, 1.2]},
        "trials": 2,
        "parallel": None,
        "strategy": "pbt",
        "perturb": ("height",),
        "quantile": 0.5,
        "interval_steps": 40,
        "seed": UPWARDS,
        "target": 1.1,
        "job": {**job, "grace_s": 5.0},
        "journal": server.root / "population.jsonl",
    }
    with pytest.raises(Killed):
        run_once(server, KilledAfterClone(*address(server)), **settings)
    result = run_once(server, server.client, **settings, resume=True)
    assert result.reason == "target reached"
    assert result.best is not None
    assert result.best.point["height"] == 1.2
    # On a slow machine its own source is replaced, too, before the first clone has the target.
    clone = next(trial for trial in result.trials if trial.source is not None and trial.job)
    assert (clone.source, clone.replaces) == (1, 0)
    assert (result.trials[0].stopped, result.trials[0].state) == ("replaced", "cancelled")
    submitted = [trial.job for trial in result.trials if trial.job is not None]
    jobs = {job.id: job for job in server.client.jobs(multijob="population")}
    assert sorted(jobs) == sorted(submitted)
    assert jobs[clone.job or ""]["start_from"] == result.trials[1].job
    began = server.cli("logs", clone.job or "").stdout.split()
    assert began[:2] == ["begins", "at"]
    assert int(began[2]) >= 10


def test_a_repeated_submission_is_the_first_job_of_the_tenant(server: LiveServer) -> None:
    settings = {"workload": "small", "idempotency_key": "once"}
    first = server.client.submit(["true"], **settings)
    again = server.client.submit(["true"], **settings)
    other = server.client.submit(["true"], tenant="other", **settings)
    assert again.id == first.id
    assert other.id not in (first.id, again.id)


def test_the_command_stops_at_the_target_and_prints_the_best(server: LiveServer) -> None:
    file = server.root / "search.yaml"
    file.write_text(
        "name: sweep\nmetric: score\ntrials: 5\ntarget: 0.8\nexclusive: 1\n"
        "space:\n  height: [0.2, 0.85, 0.9]\n"
        "job:\n  workload: small\n  steps: 40\n"
    )
    journal, folder = server.root / "sweep.jsonl", server.root / "out" / "sweep"
    words = (
        "--journal",
        journal,
        "--plot",
        folder,
        file,
        "--",
        str(server.root / "trial.py"),
        "{height}",
    )
    printed = json_output(server, "tune", *words)
    assert printed["reason"] == "target reached"
    assert printed["best"]["best"] >= 0.8
    assert printed["best"]["values"]["height"] in (0.85, 0.9)
    assert all(trial["state"] is not None for trial in printed["trials"])
    unended = server.client.jobs(multijob="sweep", unended=True)
    assert unended == []
    assert printed["files"] == [str(folder / "search.html"), str(folder / "curves.json")]
    page = (folder / "search.html").read_text()
    assert f"the best score is {printed['best']['best']:g}, of trial" in page
    recorded = json.loads((folder / "curves.json").read_text())
    assert recorded["target"] == 0.8
    points = [trial["parameters"] for trial in recorded["trials"]]
    assert points == [trial["values"] for trial in printed["trials"]]
    best = [max(trial["values"], default=None) for trial in recorded["trials"]]
    assert max(value for value in best if value is not None) >= 0.8
    refused = server.cli("tune", *words)
    assert refused.returncode == 1
    assert "exists: expected --resume" in refused.stderr


STUDY = """
import sys

import optuna
{imported}

def objective(trial):
    x, name = trial.suggest_float("x", -3, 3), trial.suggest_categorical("name", ["a", "b"])
    return (x - 1) ** 2 + (name == "a")


sampler = optuna.samplers.TPESampler(seed=7, n_startup_trials=2)
study = optuna.create_study(
    study_name="square", storage=sys.argv[1], load_if_exists=True, sampler=sampler
)
{called}
"""


def test_an_optuna_script_gives_the_same_results_as_jobs(
    server: LiveServer, tmp_path: Path
) -> None:
    here, fairlead = tmp_path / "here.py", tmp_path / "fairlead_study.py"
    here.write_text(STUDY.format(imported="", called="study.optimize(objective, n_trials=3)"))
    imported = "from fairlead.tuning.optuna import optimize"
    called = "optimize(study, objective, n_trials=3, poll_s=0.1, workload='small')"
    fairlead.write_text(STUDY.format(imported=imported, called=called))
    results = []
    for script in (here, fairlead):
        storage = f"sqlite:///{script.with_suffix('.db')}"
        command = [sys.executable, str(script), storage]
        subprocess.run(command, env=server.environment, cwd=tmp_path, check=True, timeout=300)
        study = optuna.load_study(study_name="square", storage=storage)
        results.append([(trial.state, trial.params, trial.value) for trial in study.trials])
    assert len(results[0]) == 3
    assert results[1] == results[0]
    assert len(server.client.jobs(multijob="square")) == 3
