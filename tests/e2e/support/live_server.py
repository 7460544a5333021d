"""A real server on emulated devices, which tests start, stop and kill."""

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.e2e.support.forks import ForkedProcess, forked_servers, run_command
from tests.e2e.support.trained_line import LINE
from tests.support.ports import free_port

from fairlead.client import Client, ServerError
from fairlead.engines.base import LaunchOrder
from fairlead.engines.keeper import lease_dir

TRAIN = (
    LINE
    + """
run, line, losses = job.attach(), Line(), {"seen": []}
run.register(line=line, losses=losses)
for i in run.steps(range(int(sys.argv[1]))):
    loss = line.step(i)
    losses["seen"].append(loss)
    run.report(loss=loss)
with open(f"{sys.argv[2]}.{run.rank}", "w") as file:
    json.dump({"a": line.a, "b": line.b, **losses}, file)
"""
)

SPEEDS = """workload,gang,accelerator,placement,partner,steps_per_s,partner_steps_per_s
big,1,v100,,,100,
big,1,k80,,,25,
small,1,v100,,,100,
small,1,k80,,,80,
big,2,v100,,,150,
big,2,k80,,,40,
"""


class LiveServer:
    """``fairlead serve`` in a separate directory."""

    def __init__(self, root: Path, *, devices: str = "v100=1,k80=1", round_s: float = 2.0) -> None:
        self.root, self.data = root, root / "data"
        (root / "speeds.csv").write_text(SPEEDS)
        (root / "train.py").write_text(TRAIN)
        self.devices, self.round_s = devices, round_s
        self.port = free_port()
        self.process: ForkedProcess | subprocess.Popen[bytes] | None = None
        self.forks = True
        """whether a fork may replace the start of an interpreter"""
        self.extra: tuple[str, ...] = ()
        self.creates_tenants = True
        self._client: Client | None = None
        self.lease = -1
        """lease whose token a test has"""

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "FAIRLEAD_DATA": str(self.data)}

    def start(self) -> "LiveServer":
        self.launch()
        return self.wait_until_up()

    def launch(self) -> None:
        command = ["serve", "--data", str(self.data)]
        command += ["--port", str(self.port), "--round", str(self.round_s)]
        command += ["--emulate", self.devices, "--speeds", str(self.root / "speeds.csv")]
        command += ["--create-tenants"] if self.creates_tenants else []
        command += self.extra
        with (self.root / "server.log").open("ab") as log:
            if self.forks and forked_servers().fits(os.environ):
                out = log.fileno()
                self.process = forked_servers().start(command, os.environ, out, out)
            else:
                command = [sys.executable, "-m", "fairlead", *command]
                self.process = subprocess.Popen(command, stdout=log, stderr=log)

    def wait_until_up(self) -> "LiveServer":
        assert self.process is not None
        until = time.monotonic() + 120
        while time.monotonic() < until:
            with contextlib.suppress(ServerError):
                self.client.get("/v1/jobs")
                return self
            assert self.process.poll() is None, (self.root / "server.log").read_text()[-2000:]
            time.sleep(0.05)
        raise AssertionError((self.root / "server.log").read_text()[-2000:])

    def restart_empty(self, devices: str) -> None:
        """Stop, and start with other devices and an empty data directory."""
        self.clean_up()
        self.devices, self.data, self._client = devices, self.root / "data-2", None
        self.start()

    def kill(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            self.process.wait(60)

    @property
    def client(self) -> Client:
        token = self.data / "admin.token"
        if not token.exists():
            raise ServerError("not up yet")
        if self._client is None:
            scheme = "https" if "--tls-key" in self.extra else "http"
            self._client = Client(f"{scheme}://127.0.0.1:{self.port}", token.read_text())
        return self._client

    def until_followed(self, job: str, seen: Sequence[object]) -> None:
        """Change a job until a follower of the events has seen one."""
        until = time.monotonic() + 90
        for priority in itertools.count(1):
            if seen:
                return
            assert time.monotonic() < until, "nobody follows the events"
            self.client.ask("PATCH", f"/v1/jobs/{job}", {"priority": priority})
            time.sleep(0.05)

    def running_lease(self, job: str) -> tuple[int, LaunchOrder] | None:
        """Return the lease of a job whose processes run, and its order; None if there is none."""
        for lease, directory in lease_dir.list_leases(self.data / "leases").items():
            with contextlib.suppress(FileNotFoundError):  # the server removes it after the lease
                order = lease_dir.read_order(directory)
                if order.job == job and (directory / "members.json").exists():
                    return lease, order
        return None

    def cli(self, *arguments: object) -> subprocess.CompletedProcess[str]:
        return run_command(arguments, self.environment)

    def clean_up(self) -> None:
        """Stop the server and kill the keepers that are still alive."""
        self.stop()
        if self._client is not None:
            self._client.close()
        for directory in (self.data / "leases").glob("*"):
            if not lease_dir.is_alive(directory):
                continue  # another process may have its PID by now
            with contextlib.suppress(OSError, ValueError):
                members = json.loads((directory / "members.json").read_text())
                os.kill(members["keeper"], signal.SIGKILL)


def json_output(server: LiveServer, *arguments: object) -> Any:
    """Return the JSON that a command prints."""
    at = (
        2 if arguments[0] in ("config", "policy") else 1
    )  # options after a submitted command belong to the command
    completed = server.cli(*arguments[:at], "--json", *arguments[at:])
    assert completed.returncode == 0, completed.stderr
    return json.loads(completed.stdout)
