"""A hostile tenant on the local engine with ``users``: all attacks on one server.

Another tenant's jobs, submitted before and after the attacks, make exactly their steps.
"""

import os
import pwd
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.support.live_server import LiveServer
from tests.e2e.support.trained_line import check_result
from tests.support.two_tenants import GOOD, HOSTILE, PYTHON, two_tenants
from tests.support.waiting import until

from fairlead.client import Client, ServerError
from fairlead.engines.keeper import lease_dir

SCRIPT = Path(__file__).with_name("hostile_member.py")


class Attack(LiveServer):
    """A server on the local engine for two tenants."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, devices="v100=4", round_s=4.0)
        self.extra = ("--engine", "local:users", "--processes-per-device", "48")
        shutil.copy(SCRIPT, root / "hostile_member.py")
        self.results = root / "results"
        self.results.mkdir()
        self.results.chmod(0o777)
        self._clients: dict[str, Client] = {}

    def client_of(self, tenant: str) -> Client:
        if tenant not in self._clients:
            body = {"name": tenant, "role": "tenant", "tenant": tenant}
            token = self.client.post("/v1/tokens", body)["token"]
            self._clients[tenant] = Client(f"http://127.0.0.1:{self.port}", token)
        return self._clients[tenant]

    def good(self, name: str, steps: int) -> str:
        """Submit a job of the good tenant, which trains a line."""
        command = [str(PYTHON), str(self.root / "train.py"), str(steps), str(self.results / name)]
        settings = {"workload": "big", "directory": "/", "steps": steps}
        return str(self.client_of(GOOD).submit(command, name=name, **settings)["id"])

    def attack(self, *arguments: object, **settings: Any) -> str:
        """Submit a job of the hostile tenant."""
        command = [str(PYTHON), str(self.root / "hostile_member.py"), *map(str, arguments)]
        settings = {"workload": "big", "directory": "/", "retries": 0, **settings}
        return str(self.client_of(HOSTILE).submit(command, **settings)["id"])

    def clean_up(self) -> None:
        for client in self._clients.values():
            client.close()
        super().clean_up()

    def end(self, job: str) -> dict[str, Any]:
        return self.client.wait(job, timeout_s=240.0)

    def log_of(self, job: str) -> str:
        return self.client.raw("GET", f"/v1/jobs/{job}/logs")[2].decode()

    def lease_of(self, job: str) -> Path:
        """Return the lease directory of a running job."""
        running: list[Path] = []

        def is_running() -> bool:
            for path in lease_dir.list_leases(self.data / "leases").values():
                with suppress(FileNotFoundError):
                    if lease_dir.read_order(path).job == job and lease_dir.read_members(path):
                        running.append(path)
            return bool(running)

        until(is_running, f"{job} to run")
        return running[-1]


def lives(mark: str) -> bool:
    """Return whether a process with this argument lives."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if mark.encode() in path.read_bytes().split(b"\0")[1:2]:
                return True
    return False


@pytest.fixture(scope="module")
def server() -> Iterator[Attack]:
    with two_tenants() as (root, patch):
        patch.setenv("PGPASSWORD", "hunter2")
        patch.setenv("SITE_PASSWORD", "hunter2")
        attack = Attack(root)
        try:
            attack.start()
            yield attack
        finally:
            attack.clean_up()


@pytest.fixture(scope="module")
def before(server: Attack) -> str:
    """Return a job of the good tenant that runs during the attacks."""
    job = server.good("before", 1500)
    server.lease_of(job)
    return job


def test_a_job_reaches_nothing_of_the_server_and_of_other_tenants(
    server: Attack, before: str
) -> None:
    victim = server.lease_of(before)
    members = lease_dir.read_members(victim)
    assert members is not None
    assert server.process is not None
    job = server.attack("look_around", server.process.pid, members.keeper, victim)
    assert server.end(job)["state"] == "finished", server.log_of(job)
    log, user = server.log_of(job), pwd.getpwnam(HOSTILE)
    assert "BROKEN" not in log
    assert f"looked around as {user.pw_uid} [{user.pw_gid}] {user.pw_dir} /" in log


def test_a_tenant_sees_no_log_of_another(server: Attack, before: str) -> None:
    assert server.client_of(HOSTILE).raw("GET", f"/v1/jobs/{before}/logs")[0] == 404


@pytest.mark.usefixtures("before")
def test_the_code_of_a_tenant_is_readable_for_its_user_only(
    server: Attack, tmp_path: Path
) -> None:
    (tmp_path / "print.sh").write_text("#!/bin/sh\necho the code of $(id -un) in $(pwd -P)\n")
    (tmp_path / "print.sh").chmod(0o755)
    good = server.client_of(GOOD)
    settings: dict[str, Any] = {"workload": "big", "directory": str(tmp_path), "retries": 0}
    job = good.submit(["./print.sh"], snapshot=True, **settings)
    assert server.end(job.id)["state"] == "finished", server.log_of(job.id)
    code = server.data / "jobs" / job.id / "code"
    assert server.log_of(job.id) == f"the code of {GOOD} in {code.resolve()}\n"
    stored = next((server.data / "code-snapshots").glob("*/*"))
    commands = [["cat", str(path)] for path in (code / "print.sh", stored)]
    for command in (*commands, ["ls", str(code)]):
        attack = server.client_of(HOSTILE).submit(command, **{**settings, "directory": "/"})
        assert server.end(attack.id)["state"] == "failed"
        assert "Permission denied" in server.log_of(attack.id)


@pytest.mark.usefixtures("before")
def test_a_daemon_does_not_outlive_its_lease(server: Attack) -> None:
    mark = f"600.{os.getpid()}1"
    job = server.attack("daemon", mark)
    assert server.end(job)["state"] == "finished", server.log_of(job)
    assert not lives(mark)


@pytest.mark.usefixtures("before")
def test_a_daemon_does_not_outlive_a_killed_keeper(server: Attack) -> None:
    """The next lease of the job starts on time, although the daemon held the checkpoint's lock."""
    mark = f"600.{os.getpid()}2"
    job = server.attack("orphan", mark, retries=3)
    until(lambda: "ready" in server.log_of(job), "the daemon")
    members = lease_dir.read_members(server.lease_of(job))
    assert members is not None
    assert lives(mark)
    os.kill(members.keeper, signal.SIGKILL)
    assert server.end(job)["state"] == "finished", server.log_of(job)
    assert not lives(mark)


@pytest.mark.usefixtures("before")
def test_a_fork_bomb_fails_its_own_job(server: Attack) -> None:
    ended = server.end(server.attack("bomb"))
    assert ended["state"] == "failed"
    assert "process limit: 48 processes" in ended["message"]


@pytest.mark.usefixtures("before")
def test_a_job_above_its_memory_limit_fails(server: Attack) -> None:
    ended = server.end(server.attack("hog", host_memory_gib=0.2))
    assert ended["state"] == "failed"
    assert "memory limit: 0.2" in ended["message"]


@pytest.mark.parametrize("tenant", ["root", "no-such-user"])
def test_a_tenant_without_a_usable_user_is_refused(server: Attack, tenant: str) -> None:
    with pytest.raises(ServerError, match=r"^tenant: .*Unix user"):
        server.client.submit(["true"], workload="big", tenant=tenant)


def test_the_other_tenants_jobs_make_exactly_their_steps(server: Attack, before: str) -> None:
    after = server.good("after", 100)
    for job, name, steps in ((before, "before", 1500), (after, "after", 100)):
        ended = server.end(job)
        assert (ended["state"], ended["steps_done"]) == ("finished", steps), ended
        result = server.results / f"{name}.0"
        check_result(result, steps)
        assert result.stat().st_uid == pwd.getpwnam(GOOD).pw_uid


@pytest.mark.usefixtures("before")
def test_the_server_does_not_start_without_separation(server: Attack) -> None:
    """Tokens of two tenants exist: the plain engine needs ``--trust-jobs``."""
    server.client_of(HOSTILE)
    server.client_of(GOOD)
    server.stop()
    command = [sys.executable, "-m", "fairlead", "serve", "--data", str(server.data)]
    command += ["--emulate", "v100=1", "--port", str(server.port)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=180)
    assert done.returncode != 0
    assert "--engine local:users" in done.stderr
    assert "--trust-jobs" in done.stderr
    assert GOOD in done.stderr
    server.extra = ("--trust-jobs",)
    server.start()


def test_a_token_of_a_second_tenant_needs_separation(tmp_path: Path) -> None:
    server = LiveServer(tmp_path)
    with closing(server.start().client) as admin:
        admin.post("/v1/tokens", {"name": "a", "role": "tenant", "tenant": "red"})
        admin.post("/v1/tokens", {"name": "b", "role": "tenant", "tenant": "red"})
        body = {"name": "c", "role": "tenant", "tenant": "blue"}
        status, _, text = admin.raw("POST", "/v1/tokens", body)
        assert status == 409
        assert b"--engine local:users" in text
        assert b"--trust-jobs" in text
        assert {token["tenant"] for token in admin.get("/v1/tokens")} == {None, "red"}
        server.clean_up()
