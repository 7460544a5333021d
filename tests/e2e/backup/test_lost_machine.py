"""A running server is backed up, lost with its machine, restored elsewhere, and cleaned by age."""

import os
import signal
import sys
import tarfile
from functools import partial
from pathlib import Path

import pytest
from tests.e2e.support.live_server import LiveServer, json_output
from tests.e2e.support.trained_line import LINE, check_result
from tests.support.waiting import until

from fairlead.client import ServerError
from fairlead.engines.keeper import lease_dir
from fairlead.job import checkpoint

STEPS, PAUSE = 150, 60
TRAIN = (
    LINE
    + """
run, line, losses, begun = job.attach(), Line(), {"seen": []}, []
run.register(line=line, losses=losses)
for i in run.steps(range(int(sys.argv[1]))):
    if not begun:
        begun.append(print("begins at", i, flush=True))
    while i == int(sys.argv[3]) and not os.path.exists("go-on"):
        time.sleep(0.02)
    losses["seen"].append(line.step(i))
    run.report(loss=losses["seen"][-1])
with open(f"{sys.argv[2]}.{run.rank}", "w") as file:
    json.dump({"a": line.a, "b": line.b, **losses}, file)
"""
)
"""job that waits for a file before one of its steps"""


def saved_steps(server: LiveServer, job: str) -> int:
    committed = checkpoint.latest(str(server.data / "jobs" / job / "checkpoint"))
    return 0 if committed is None else committed.steps


def has_ended(pid: int) -> bool:
    return lease_dir.process_start_ticks(pid) is None


def lose_machine(server: LiveServer) -> None:
    """Kill the server and all processes of its jobs, and take the data away."""
    server.kill()
    for directory in lease_dir.list_leases(server.data / "leases").values():
        members = lease_dir.read_members(directory)
        if members is not None and lease_dir.is_alive(directory):
            os.kill(members.keeper, signal.SIGKILL)
            for pid, _ in members.started:
                until(partial(has_ended, pid), "a job runs")
    server.client.close()
    server.data.rename(server.root / "lost")


def test_jobs_of_a_lost_machine_continue_from_a_backup_of_the_running_server(
    tmp_path: Path,
) -> None:
    server = LiveServer(tmp_path, devices="v100=1", round_s=2.0)
    server.creates_tenants = False
    try:
        server.start()
        (tmp_path / "train.py").write_text(TRAIN)
        train = [sys.executable, str(tmp_path / "train.py")]
        fields = {"workload": "big", "directory": str(tmp_path)}
        short = [*train, "40", str(tmp_path / "ended"), "-1"]
        ended = server.client.submit(short, steps=40, **fields)["id"]
        server.client.wait(ended, timeout_s=60)
        environment = {"FAIRLEAD_CHECKPOINT_S": "0.05"}
        long = [*train, str(STEPS), str(tmp_path / "out"), str(PAUSE)]
        job = server.client.submit(long, steps=STEPS, environment=environment, **fields)["id"]
        until(lambda: saved_steps(server, job) >= PAUSE / 2, "no checkpoint was saved")
        made = json_output(server, "backup", "--logs", tmp_path)
        assert made["warnings"] == []
        assert server.client.job(job)["state"] == "running"
        lose_machine(server)
        check_archive(Path(made["file"]), job, ended)
        server.data, server._client = tmp_path / "another-machine", None
        restored = json_output(server, "restore", made["file"], "--data", server.data)
        (tmp_path / "go-on").touch()
        server.start()
        check_restored(server, job, ended)
        check_nothing_counts_after_the_backup(server, job, restored["made_at"])
        check_retention(server, job, ended)
    finally:
        server.clean_up()


def check_archive(path: Path, job: str, ended: str) -> None:
    assert path.stat().st_mode & 0o777 == 0o600
    with tarfile.open(path) as archive:
        names = archive.getnames()
    assert (names[0], names[1], names[-1]) == (
        "fairlead-backup.json",
        "database.db",
        "checksums.json",
    )
    files = {name.rpartition("/")[2] for name in names if f"jobs/{job}/checkpoint/" in name}
    assert {"latest.json"} < files
    assert not files & {"fence", "lock"}
    assert any(name.startswith(f"jobs/{ended}/logs/") for name in names)
    assert not {"secrets.key", "admin.token"} & set(names)
    assert list(path.parent.glob("*.tmp")) == []


def check_restored(server: LiveServer, job: str, ended: str) -> None:
    shown = server.client.wait(job, timeout_s=60)
    assert (shown["state"], shown["steps_done"], shown["suspicious_reports"]) == (
        "finished",
        STEPS,
        0,
    )
    check_result(server.root / "out.0", STEPS)
    leases = server.client.get(f"/v1/jobs/{job}/leases")["ended"]
    assert [lease["ending"] for lease in leases] == ["lost", "finished"]
    assert sum(lease["steps"] for lease in leases) == STEPS
    begins = [line.split()[-1] for line in logs(server, job).splitlines() if "begins" in line]
    assert begins[0] == "0"
    assert PAUSE / 2 <= int(begins[1]) <= PAUSE
    assert server.client.job(ended)["metrics"]["loss"] > 0
    assert server.client.get("/v1/audit/verify")["intact"]


def check_nothing_counts_after_the_backup(server: LiveServer, job: str, made_at: float) -> None:
    """Check that the lost lease ended with the backup, and lost only steps that are not in it."""
    first, last = server.client.get(f"/v1/jobs/{job}/leases")["ended"]
    assert first["ended_at"] == made_at
    assert last["started_at"] > made_at
    lost = (PAUSE - first["steps"]) / PAUSE
    assert first["lost_s"] <= lost * (made_at - first["started_at"]) + 1e-6
    log = (server.root / "server.log").read_text()
    assert ("job.work_lost" in log) == (first["lost_s"] >= 1.0)
    (entry,) = server.client.get("/v1/audit?action=restore-backup")
    assert (entry["role"], entry["actor"]) == ("admin", f"uid {os.getuid()}")
    assert entry["changes"]["time"]["new"] == made_at


def check_retention(server: LiveServer, job: str, ended: str) -> None:
    """Reload settings with short ages: ended jobs go and are no longer shown."""
    client, log = server.client, server.root / "server.log"
    reload(server, "keep_jobs = 1")
    until(lambda: "fairlead.toml:1: keep_jobs: " in log.read_text(), "no error")
    assert len(client.get("/v1/jobs")) == 2
    reload(server, 'keep_jobs = "1s"\nbody_mib = 3')
    until(lambda: client.get("/v1/jobs") == [], "jobs are still listed")
    assert "settings.need_restart settings=['body_mib']" in log.read_text()
    (entry,) = client.get("/v1/audit?action=settings")
    assert entry["changes"] == {"keep_jobs": {"old": None, "new": "1s"}}
    with pytest.raises(ServerError, match="no tenant 'newcomers'"):
        client.submit(["true"], workload="big", tenant="newcomers")
    metrics(server)
    assert "path=/metrics" not in log.read_text()
    more = 'create_tenants = true\nlog_level = "debug"'
    reload(server, f'keep_jobs = "1s"\nkeep_audit = "0s"\n{more}')
    for one in (job, ended):
        assert not (server.data / "jobs" / one).exists()
        for path in ("", "/logs", "/metrics", "/explain"):
            with pytest.raises(ServerError, match="no job"):
                client.get(f"/v1/jobs/{one}{path}")
    until(
        lambda: (
            'fairlead_removed_total{kind="audit"}' in metrics(server)
            and 'fairlead_removed_total{kind="audit"} 0.0' not in metrics(server)
        ),
        "no audit entry was removed",
    )
    assert 'fairlead_removed_total{kind="jobs"} 2.0' in metrics(server)
    assert client.get("/v1/audit/verify")["intact"]
    assert client.get("/v1/audit")[-1]["subject"] != ended
    until(lambda: "path=/metrics" in log.read_text(), "the level is not debug")
    late = client.submit(["true"], workload="big", tenant="newcomers")["id"]
    assert late not in (job, ended)


def reload(server: LiveServer, settings: str) -> None:
    """Write the settings file of a running server and let the server read it."""
    (server.data / "fairlead.toml").write_text(settings)
    assert server.process is not None
    server.process.send_signal(signal.SIGHUP)


def metrics(server: LiveServer) -> str:
    return server.client.raw("GET", "/metrics")[2].decode()


def logs(server: LiveServer, job: str) -> str:
    return server.client.raw("GET", f"/v1/jobs/{job}/logs")[2].decode()
