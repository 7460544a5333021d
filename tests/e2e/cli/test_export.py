"""Advice on a real Slurm: what is printed makes jobs of others start in that order, there."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.support.live_server import LiveServer

from fairlead.private_clusters.slurm import SlurmCluster

USERS = {"daemon": 1, "games": 5}
"""users of the waiting jobs; every Debian has them"""


def export(*arguments: object) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "fairlead", "export", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def submit(slurm: SlurmCluster, user: str, *options: str, seconds: float = 1.0) -> str:
    common = ("--parsable", f"--uid={USERS[user]}", "--chdir=/", "--output=/dev/null")
    wrapped = ("--wrap", f"sleep {seconds}")
    return slurm.run("sbatch", *common, *options, *wrapped).strip()


def show(slurm: SlurmCluster, job: str) -> dict[str, str]:
    line = slurm.run("scontrol", "show", "job", job, "--oneliner")
    return dict(word.split("=", 1) for word in line.split() if "=" in word)


def wait_until_started(slurm: SlurmCluster, jobs: list[str]) -> None:
    until = time.monotonic() + 120
    while any(show(slurm, job)["JobState"] == "PENDING" for job in jobs):
        assert time.monotonic() < until, [show(slurm, job) for job in jobs]
        time.sleep(0.2)


@pytest.fixture
def foreign(slurm: SlurmCluster) -> Iterator[SlurmCluster]:
    yield slurm
    for number in USERS.values():
        slurm.run("scancel", f"--user={number}")


@pytest.mark.slow
def test_held_jobs_start_on_the_advised_nodes(foreign: SlurmCluster) -> None:
    held = {
        submit(foreign, "daemon", "--hold", "--gres=gpu:1", "--job-name=ResNet-50", seconds=300),
        submit(foreign, "games", "--hold", "--gres=gpu:1", "--nodes=2", seconds=300),
        submit(foreign, "daemon", "--hold", "--gres=gpu:k80:2", seconds=300),
    }
    advised = {one["job"]: one for one in json.loads(export("--slurm", "--json"))}
    assert set(advised) == held
    assert {one["action"] for one in advised.values()} == {"start"}
    commands = export("--slurm", "--format", "slurm")
    assert all(show(foreign, job)["JobState"] == "PENDING" for job in held), (
        "advice starts nothing"
    )
    subprocess.run(["sh", "-e"], input=commands, text=True, check=True)
    wait_until_started(foreign, sorted(held))
    for job, one in advised.items():
        names = foreign.run("scontrol", "show", "hostnames", show(foreign, job)["NodeList"])
        assert names.split() == [node for node, _ in one["nodes"]]
    again = {one["job"]: one for one in json.loads(export("--slurm", "--json"))}
    assert {one["action"] for one in again.values()} == {"runs"}
    assert {job: one["nodes"] for job, one in again.items()} == {
        job: one["nodes"] for job, one in advised.items()
    }


@pytest.mark.slow
def test_waiting_jobs_start_in_the_advised_order(foreign: SlurmCluster, tmp_path: Path) -> None:
    blocker = submit(foreign, "games", "--gres=gpu:p100:2", seconds=600)
    wait_until_started(foreign, [blocker])
    # Three jobs of one user came first; the other user's one is due after the first of them.
    theirs = [submit(foreign, "daemon", "--gres=gpu:p100:2") for _ in range(3)]
    tenants = tmp_path / "tenants.yaml"
    tenants.write_text("tenants:\n- {id: daemon, weight: 1}\n- {id: games, weight: 4}\n")
    last = submit(foreign, "games", "--gres=gpu:p100:2")
    arguments = ("--slurm", "--policy", "hierarchical", "--tenants-file", tenants)
    advised: list[dict[str, Any]] = json.loads(export(*arguments, "--json"))
    waiting = [one["job"] for one in advised if one["action"] == "wait"]
    # The blocker is games's, who thus holds all that they are entitled to.
    assert [one["job"] for one in advised if one["action"] == "runs"] == [blocker]
    assert waiting[0] == theirs[0]
    assert waiting.index(last) < waiting.index(theirs[2]), "they came last, yet are owed more"
    subprocess.run(
        ["sh", "-e"], input=export(*arguments, "--format", "slurm"), text=True, check=True
    )
    foreign.run("scancel", blocker)
    wait_until_started(foreign, waiting)
    started = sorted(waiting, key=lambda job: show(foreign, job)["StartTime"])
    assert started == waiting


def test_a_server_advises_running_and_waiting_jobs(tmp_path: Path) -> None:
    server = LiveServer(tmp_path, devices="v100=1,k80=1", round_s=30.0).start()
    try:
        train = [sys.executable, str(tmp_path / "train.py"), "100000", str(tmp_path / "out")]
        for tenant in ("a", "a", "a", "b"):
            server.client.submit(train, workload="big", steps=100000, tenant=tenant)
        until = time.monotonic() + 90
        advised: list[dict[str, Any]] = []
        while sum(one["action"] == "runs" for one in advised) < 2 and time.monotonic() < until:
            advised = json.loads(server.cli("export", "--live", "--json").stdout)
            time.sleep(0.2)
        assert [one["action"] for one in advised] == ["runs", "runs", "wait", "wait"]
        assert {one["nodes"][0][0] for one in advised[:2]} == {"v100-0", "k80-0"}
        holders = [one["tenant"] for one in advised[:2]]
        if holders == ["a", "a"]:
            assert advised[2]["tenant"] == "b", "who holds nothing comes first"
        refused = server.cli("export", "--live", "--format", "slurm")
        assert refused.returncode == 2
        assert "--slurm" in refused.stderr
    finally:
        server.clean_up()
