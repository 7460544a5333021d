"""Results outlive their leases and the server: metrics, exits, leases, usage and counters."""

import csv
import io
import json
import sys
from pathlib import Path

import pytest
from tests.e2e.support.live_server import LiveServer
from tests.support.waiting import until

from fairlead.live.history.recorder import KIND
from fairlead.store import Store

FAILS = "print('one last line \\x1b[31m', flush=True); import os; os.kill(os.getpid(), 9)"


def test_results_of_ended_jobs_survive_a_killed_server(tmp_path: Path) -> None:
    server = LiveServer(tmp_path, round_s=2.0)
    try:
        server.start()
        client = server.client
        client.ask("PUT", "/v1/tenants/lab", {"id": "lab"})
        train = [sys.executable, str(tmp_path / "train.py"), "150", str(tmp_path / "out")]
        trained = client.submit(train, workload="big", steps=150, name="run-1", tenant="lab")
        other = client.submit(train, workload="small", steps=150, name="run-2", tenant="lab")
        for job in (trained, other):
            assert client.wait(job["id"], timeout_s=60)["state"] == "finished"
        failed = client.submit([sys.executable, "-c", FAILS], workload="small", retries=0)["id"]
        assert client.wait(failed, timeout_s=90)["state"] == "failed"
        job = trained["id"]
        until(lambda: client.get(f"/v1/jobs/{job}/leases")["ended"], "no lease was recorded")
        before = client.get(f"/v1/jobs/{job}/metrics")
        newest = before["history"]["loss"][-1]["value"]
        assert newest == pytest.approx(before["last"]["loss"], rel=1e-6)
        until(
            lambda: all(has_stored_leases(server, each) for each in (job, failed)),
            "the histories were not stored",
        )
        server.kill()
        server.start()
        _check_after_restart(server, job, failed, before)
        _check_command_line(server, job, other["id"], failed)
    finally:
        server.clean_up()


def has_stored_leases(server: LiveServer, job: str) -> bool:
    """Return whether the stored history of a job has its leases."""
    store = Store(f"sqlite:///{server.data / 'fairlead.db'}")
    text = store.document(KIND, job)
    store.close()
    return text is not None and bool(json.loads(text)["leases"])


def _check_after_restart(
    server: LiveServer, job: str, failed: str, before: dict[str, object]
) -> None:
    client = server.client
    after = client.get(f"/v1/jobs/{job}/metrics")
    assert after == before
    shown = client.job(job)
    assert shown["metrics"] == after["last"]
    assert (shown["exit_codes"], shown["signal"]) == ([0], None)
    leases = client.get(f"/v1/jobs/{job}/leases")
    assert leases["leases"] == len(leases["ended"]) == shown["leases"]
    last = leases["ended"][-1]
    assert (last["ending"], sum(lease["steps"] for lease in leases["ended"])) == ("finished", 150)
    # The last lease may end before it reports its first step.
    assert any(lease["start_s"] is not None for lease in leases["ended"])
    held_h = sum(lease["ended_at"] - lease["started_at"] for lease in leases["ended"]) / 3600
    assert abs(leases["device_hours"] - held_h) < 1e-9
    killed = client.job(failed)
    assert killed["message"] == "it exited with 137 (SIGKILL)"
    assert (killed["exit_codes"], killed["signal"]) == ([137], "SIGKILL")
    assert killed["log_tail"] == ["one last line \\x1b[31m"]
    used = client.get("/v1/usage", tenant="lab")
    jobs = client.get("/v1/jobs", tenant="lab")
    total_h = sum(row["device_hours"] for row in used)
    assert abs(total_h - sum(each["device_hours"] for each in jobs)) < 1e-9
    assert client.get("/v1/usage", to="2020-01-01") == []
    assert client.raw("GET", "/v1/usage?from=yesterday")[0] == 422
    metrics = client.text("GET", "/metrics")[1].decode()
    for state, count in {"finished": 2, "failed": 1, "submitted": 3}.items():
        lines = [x for x in metrics.splitlines() if x.startswith(f"fairlead_jobs_{state}_total{{")]
        assert sum(float(line.split()[-1]) for line in lines) == count, state
    assert 'fairlead_queue_wait_seconds_bucket{le="+Inf"} 3.0' in metrics
    assert 'fairlead_device_seconds_total{accelerator="' in metrics


def _check_command_line(server: LiveServer, job: str, other: str, failed: str) -> None:
    losses = {each: server.client.job(each)["metrics"]["loss"] for each in (job, other)}
    ranked = server.cli("jobs", "--sort", "loss", "--json")
    rows = json.loads(ranked.stdout)
    assert [row["id"] for row in rows] == [*sorted(losses, key=losses.__getitem__), failed]
    assert ranked.stderr == ""
    assert "loss" in server.cli("jobs", "--sort", "loss", "--reverse").stdout
    unknown = server.cli("jobs", "--sort", "accuracy", "--json")
    problem = "--sort: none of these jobs has reported a metric 'accuracy'"
    assert unknown.stderr == f"{problem}: expected one of loss\n"
    assert len(json.loads(unknown.stdout)) == len(rows)
    page = server.cli("job", failed).stdout
    assert "137 (SIGKILL)" in page
    assert "one last line \\x1b[31m" in page
    report = server.cli("usage", "--csv", "--tenant", "lab").stdout
    table = list(csv.DictReader(io.StringIO(report)))
    assert {row["tenant"] for row in table} == {"lab"}
    assert all(float(row["device_hours"]) > 0 for row in table)
    assert "lab" in server.cli("usage").stdout
