"""Plug-ins of other packages that are broken, raise, return nonsense or hang: they are named."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.support.live_server import LiveServer
from tests.support.waiting import until

MODULE = '''
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fairlead.model.allocation import Allocation
from fairlead.mechanisms.shares import Shares
from fairlead.model.arrays import NO_INTS
from fairlead.model.lease import Placement, Placements
from fairlead.model.plan import Plan
from fairlead.policies.fifo import Fifo

MODE = Path(__file__).with_name("mode")


@dataclass(frozen=True)
class Moody(Fifo):
    """Misbehave as a file says."""

    def allocate(self, snap):
        mode, shares = MODE.read_text(), super().allocate(snap)
        if mode == "raise":
            raise RuntimeError("no mood")
        if mode == "exit":
            raise SystemExit(3)
        if mode == "nan":
            return Allocation(shares.members, shares.share * np.nan, shares.columns)
        if mode == "too much":
            return Allocation(shares.members, shares.share + 9.0, shares.columns)
        if mode == "nonsense":
            return "nonsense"
        return shares


@dataclass(frozen=True)
class Wild(Shares):
    """Place jobs as a file says."""

    def plan_warm(self, warm, snap, memory):
        mode = MODE.read_text()
        plan, memory = super().plan_warm(warm, snap, memory)
        if mode == "places nonsense":
            start = Placements.of([Placement(10**6, 0, (10**6,))])
            return Plan(NO_INTS, start, plan.until, plan.wake_at), memory
        if mode == "remembers nonsense":
            return plan, object()
        return plan, memory

    def refill(self, snap, memory, idle):
        if MODE.read_text() == "refill":
            raise RuntimeError("no mood")
        return super().refill(snap, memory, idle)


class NotADataclass:
    pass
'''
ENTRY_POINTS = """
[fairlead.policies]
moody = moody:Moody
gone = moody:Gone
absent = no_such_module:Policy
empty = moody:NotADataclass
max-min = moody:Moody

[fairlead.mechanisms]
wild = moody:Wild
broken = moody:MODE

[fairlead.engines]
odd = moody:NotADataclass
"""
UNTIL_FILE = """
import pathlib, sys, time
while not pathlib.Path(sys.argv[1]).exists():
    time.sleep(0.05)
"""
BROKEN = {"gone", "absent", "empty", "max-min", "broken"}


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Install a package with good and bad plug-ins; return the file with the mode of the good."""
    site = tmp_path / "site"
    info = site / "moody_plugins-1.2.dist-info"
    info.mkdir(parents=True)
    (site / "moody.py").write_text(MODULE)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: moody-plugins\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    monkeypatch.setenv("PYTHONPATH", str(site))
    mode = site / "mode"
    mode.write_text("")
    return mode


def fairlead(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "fairlead", *map(str, arguments)],
        capture_output=True, text=True, env=os.environ.copy(), timeout=180, check=False,
    )  # fmt: skip


def test_broken_plug_ins_are_listed_with_package_and_reason(package: Path) -> None:
    listed = fairlead("policies", "--json")
    assert listed.returncode == 0, listed.stderr
    entries = json.loads(listed.stdout)
    broken = {row["name"]: row for row in entries if row["broken"]}
    assert broken.keys() == BROKEN
    assert {row["package"] for row in broken.values()} == {"moody-plugins 1.2"}
    assert "no_such_module" in broken["absent"]["broken"]
    assert "Gone" in broken["gone"]["broken"]
    assert "not a dataclass" in broken["empty"]["broken"]
    assert "taken by package 'fairlead" in broken["max-min"]["broken"]
    good = {row["name"]: row["package"] for row in entries if not row["broken"]}
    assert good["moody"] == "moody-plugins 1.2"
    assert good["max-min"].startswith("fairlead ")

    text = fairlead("policies")
    assert text.returncode == 0, text.stderr
    assert "broken plug-ins" in text.stdout
    data = package.parent / "data"
    doctor = fairlead("doctor", "--data", data, "--json")
    rows = [row for row in json.loads(doctor.stdout)["findings"] if row["what"] == "plug-ins"]
    assert len(rows) == len(BROKEN) + 1
    assert all("moody-plugins 1.2" in row["found"] for row in rows)
    assert any("engine 'odd'" in row["found"] for row in rows)
    refused = fairlead("serve", "--data", data, "--emulate", "v100=1", "--policy", "absent")
    assert refused.returncode == 2, refused.stderr
    assert "policy 'absent' of package 'moody-plugins 1.2'" in refused.stderr
    assert "Traceback" not in refused.stderr


@pytest.fixture
def server(package: Path, tmp_path: Path) -> Iterator[LiveServer]:
    server = LiveServer(tmp_path, devices="v100=2", round_s=1.0)
    server.extra = ("--policy", "moody", "--mechanism", "wild", "--trust-jobs")
    try:
        yield server.start()
    finally:
        package.write_text("")
        server.clean_up()


def test_a_live_plug_in_that_misbehaves_is_named_and_running_jobs_continue(
    server: LiveServer, package: Path
) -> None:
    client = server.client
    script = server.root / "wait.py"
    script.write_text(UNTIL_FILE)
    end = server.root / "end"
    body = {"command": [sys.executable, str(script), str(end)], "workload": "big"}
    running = client.post("/v1/jobs", body)["id"]
    until(lambda: client.get(f"/v1/jobs/{running}")["state"] == "running")
    assert client.raw("GET", "/readyz")[2] == b"ok\n"
    failed = _failed(server)
    for mode, culprit in (
        ("raise", "policy 'moody'"), ("exit", "policy 'moody'"), ("nan", "policy 'moody'"),
        ("too much", "policy 'moody'"), ("nonsense", "policy 'moody'"),
        ("places nonsense", "mechanism 'wild'"), ("remembers nonsense", "mechanism 'wild'"),
        ("refill", "mechanism 'wild'"),
    ):  # fmt: skip
        package.write_text(mode)
        waiting = client.post("/v1/jobs", {**body, "gang": 2})["id"]  # a new plan and a refill
        label = culprit.split("'")[1]
        before = failed.get(f"moody-plugins:{label}", 0.0)
        until(partial(_fails_again, server, body, label, before))
        answer = client.raw("GET", "/readyz")[2].decode()
        assert f"{culprit} of package 'moody-plugins 1.2'" in answer, (mode, answer)
        assert client.get(f"/v1/jobs/{running}")["state"] == "running", mode
        assert client.raw("GET", f"/v1/jobs/{running}/explain")[0] < 500
        client.post(f"/v1/jobs/{waiting}/cancel", {})
        package.write_text("")
        failed = _failed(server)
    end.touch()
    until(lambda: client.get(f"/v1/jobs/{running}")["state"] == "finished")
    assert client.get(f"/v1/jobs/{running}")["leases"] == 1
    assert 'plugin=moody package="moody-plugins 1.2"' in (server.root / "server.log").read_text()


def _fails_again(server: LiveServer, body: dict[str, Any], label: str, before: float) -> bool:
    """Cause a plan or refill; return whether more have failed than before."""
    job = server.client.post("/v1/jobs", {**body, "gang": 2})["id"]
    server.client.post(f"/v1/jobs/{job}/cancel", {})
    return _failed(server)[f"moody-plugins:{label}"] > before


def _failed(server: LiveServer) -> dict[str, float]:
    """Return plug-in → failed plans."""
    text = server.client.raw("GET", "/metrics")[2].decode()
    lines = [line for line in text.splitlines() if line.startswith("fairlead_plans_failed_total{")]
    return {line.split('"')[1]: float(line.split()[-1]) for line in lines}
