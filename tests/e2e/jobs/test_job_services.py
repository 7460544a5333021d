"""Dependencies, time limits, code snapshots, containers and notifications on one real server."""

import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.support.live_server import LiveServer, json_output
from tests.support.waiting import until

from fairlead.client import Client, ServerError

# A runtime that runs the command after the image, as podman would, and notes its own arguments.
RUNTIME = """#!/bin/sh
echo "$@" >> "{log}"
if [ "$1" = rm ]; then exit 0; fi
while [ "$1" != image:1 ]; do shift; done
shift
"$@" & child=$!
trap 'kill -TERM $child' TERM
while kill -0 $child 2>/dev/null; do wait $child; status=$?; done
exit $status
"""
TRAPS = "trap 'echo stopped; exit 85' TERM; echo started $LR $0; while :; do sleep 0.05; done"


class Receiver:
    """An HTTP server that notes the notifications it receives."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                outer.bodies.append(json.loads(body))
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/hooks/"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


class Site(LiveServer):
    """A server with a fake container runtime, which sends notifications."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, devices="v100=3", round_s=30.0)
        self.receiver = Receiver()
        self.clients: list[Client] = []
        self.extra = ("--notify-urls", self.receiver.url, "--trust-jobs")
        self.extra += ("--snapshot-limit", "1", "--snapshot-quota", "1.5")
        self.runtime_log = root / "runtime.log"
        (root / "bin").mkdir()
        (root / "bin" / "podman").write_text(RUNTIME.format(log=self.runtime_log))
        (root / "bin" / "podman").chmod(0o755)

    def client_of(self, tenant: str) -> Client:
        """Return a client of a tenant, which ``clean_up`` closes."""
        body = {"name": tenant, "role": "tenant", "tenant": tenant}
        token = self.client.post("/v1/tokens", body)["token"]
        self.clients.append(Client(f"http://127.0.0.1:{self.port}", token))
        return self.clients[-1]

    def clean_up(self) -> None:
        for client in self.clients:
            client.close()
        super().clean_up()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    made = Site(tmp_path_factory.mktemp("jobs"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{made.root / 'bin'}:{os.environ['PATH']}")
        try:
            made.start()
            yield made
        finally:
            made.clean_up()
            made.receiver.server.shutdown()
            made.receiver.server.server_close()


def git(directory: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    command = ["git", "-C", str(directory), *identity, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def test_a_job_with_a_snapshot_runs_the_code_of_its_submission(site: Site, tmp_path: Path) -> None:
    client, home = site.client, tmp_path
    (home / "lib").mkdir()
    (home / "lib" / "text.py").write_text("TEXT = 'as submitted'")
    (home / "train.py").write_text("from lib.text import TEXT; print(TEXT, flush=True)")
    git(home, "init", "--quiet")
    git(home, "add", ".")
    git(home, "commit", "--quiet", "--message", "first")
    first = client.submit(["sleep", "600"], name="first", workload="small")["id"]
    options = ("--snapshot", "--after-any", "first", "--directory", home, "--workload", "small")
    done = site.cli("submit", *options, "train.py")
    assert done.returncode == 0, done.stderr
    job = done.stdout.strip()
    assert client.job(job)["waits_for"] == [first]
    assert f"waits for {first}" in site.cli("job", job).stdout
    with pytest.raises(ServerError, match=f"is not being scheduled: it waits for {first}"):
        client.get(f"/v1/jobs/{job}/explain")
    (home / "lib" / "text.py").write_text("TEXT = 'edited'")
    site.kill()
    site.start()
    dirty = client.submit(
        [sys.executable, "train.py"],
        snapshot=True,
        directory=str(home),
        workload="small",
        after=[job],
    )
    client.cancel(first)
    assert [client.wait(each, timeout_s=120)["state"] for each in (job, dirty.id)] == [
        "finished"
    ] * 2
    assert client.logs(job) == "as submitted\n"
    assert client.logs(dirty.id) == "edited\n"
    shown = client.job(job)
    assert (shown["code_commit"], shown["code_dirty"]) == (git(home, "rev-parse", "HEAD"), False)
    assert client.job(dirty.id)["code_dirty"] is True
    assert (site.data / "code-snapshots").stat().st_mode & 0o077 == 0


def test_snapshots_have_a_limit_a_quota_and_one_owner(site: Site, tmp_path: Path) -> None:
    home = tmp_path
    (home / "data.bin").write_bytes(b"x" * (2 << 20))
    done = site.cli("submit", "--snapshot", "--directory", home, "true")
    assert done.returncode != 0
    assert "limit of 1.0 MiB; largest: data.bin (2.0 MiB): expected code only" in done.stderr
    name = tmp_path.name  # a tenant of this attempt only
    lab, other = site.client_of(name), site.client_of("other")
    (home / "data.bin").write_bytes(b"x" * (900 << 10))
    first = lab.upload_code(str(home))
    job = lab.submit(["sleep", "600"], code_snapshot=first.digest, workload="small")
    with pytest.raises(ServerError, match="code_snapshot: tenant other has no code snapshot"):
        other.submit(["true"], code_snapshot=first.digest, workload="small")
    with pytest.raises(ServerError, match="not permitted with a token of tenant 'other'"):
        other.get(f"/v1/code-snapshots/{first.digest}", tenant=name)
    (home / "data.bin").write_bytes(b"y" * (900 << 10))
    with pytest.raises(
        ServerError, match=rf"size: code snapshots of tenant {name} use 0\.9 of 1\.5 MiB"
    ):
        lab.upload_code(str(home))
    lab.cancel(job.id)
    lab.wait(job.id, timeout_s=90)
    stored = next((site.data / "code-snapshots").rglob(f"{first.digest}*"))
    os.utime(stored, (0, 0))
    second = lab.upload_code(str(home))
    assert not stored.exists()
    assert lab.get("/v1/code-snapshots")["used_bytes"] == second.size
    digest = hashlib.sha256(b"evil").hexdigest()
    for query, message in {
        "zz?offset=0&size=4": "snapshot_id: not allowed",
        f"{digest}?offset=0&size=4": "code_snapshot: not a code snapshot",
        f"{digest}?offset=7&size=99": "offset: part from byte 7 on: expected the part from byte 0",
        f"{digest}?offset=3&size=4": "offset: beyond its size",
        f"{digest}?offset=0&size={2 << 20}": "size: code snapshot of 2,097,152 bytes",
    }.items():
        with pytest.raises(ServerError) as caught:
            lab.text("PUT", f"/v1/code-snapshots/{query}", b"evil")
        assert str(caught.value).startswith(message)


def test_a_job_beyond_its_time_limit_is_stopped_fails_and_is_reported(site: Site) -> None:
    client, url = site.client, site.receiver.url
    with pytest.raises(ServerError, match="this path are not allowed: expected a URL below"):
        client.submit(["true"], workload="small", notify="http://169.254.169.254/latest/meta-data")
    job = json_output(
        site,
        *("submit", "--workload", "small", "--time-limit", 4, "--grace", 20),
        *("--notify", f"{url}x", "sh", "-c", TRAPS),
    )["id"]
    ended = client.wait(job, timeout_s=120)
    assert ended["state"] == "failed"
    assert ended["message"].startswith("time limit: held its devices for ")
    assert ended["leases"] == 1
    assert ended["held_s"] >= 4.0
    assert "stopped" in client.logs(job)
    assert "time limit" in site.cli("job", job).stdout
    until(lambda: any(each["job"] == job for each in site.receiver.bodies), "no notification")
    body = site.receiver.bodies[-1]
    assert (body["id"], body["event"]) == (f"{job}-failed", "job.failed")
    assert body["message"] == ended["message"]


def test_a_container_gets_its_signals_and_leaves_nothing(site: Site, tmp_path: Path) -> None:
    client, home = site.client, tmp_path
    site.runtime_log.unlink(missing_ok=True)
    job = json_output(
        site,
        *(
            "submit",
            "--workload",
            "small",
            "--container",
            "image:1",
            "--env",
            "LR=0.1",
            "--directory",
            home,
        ),
        *("sh", "-c", TRAPS),
    )["id"]
    until(lambda: "started 0.1" in client.logs(job), "it does not start")
    client.suspend(job)
    until(lambda: "stopped" in client.logs(job), "the signal does not reach it")
    until(lambda: client.job(job)["devices"] == 0, "it keeps its devices")
    client.cancel(job)
    first, *rest = site.runtime_log.read_text().splitlines()
    assert f"--workdir {home}" in first
    assert "--env FAIRLEAD_CHECKPOINT_DIR" in first
    assert "--env LR" in first
    assert "--env PATH" not in first
    name = first.split("--name ")[1].split()[0]
    assert rest == [f"rm --force {name}"]
    stubborn = "trap '' TERM; while :; do sleep 0.05; done"
    settings: dict[str, Any] = {"workload": "small", "container": "image:1", "grace_s": 0.3}
    killed = client.submit(["sh", "-c", stubborn], **settings)["id"]
    marks = (f"FAIRLEAD_JOB={killed}".encode(), b"FAIRLEAD_RANK=0")
    until(lambda: processes_with(*marks), "it does not start")
    client.cancel(killed)
    until(lambda: not processes_with(*marks), "a process is left")
    with pytest.raises(ServerError, match="container: no apptainer in the PATH of"):
        client.submit(["true"], container="train.sif", workload="small")


def processes_with(*variables: bytes) -> list[int]:
    """Return the processes whose environment has these variables."""
    pids = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            environment = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if set(variables) <= set(environment):
            pids.append(int(path.parent.name))
    return pids
