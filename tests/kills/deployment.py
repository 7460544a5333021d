"""A real server with its data on a separate disk and jobs, for tests that kill them."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.kills import shifted_clock, train
from tests.kills.shifted_clock import ShiftedClock
from tests.support.ports import free_port

from fairlead import failpoints
from fairlead.client import TERMINAL_STATES, Client, ServerError
from fairlead.engines.keeper import lease_dir

_SPEEDS = """workload,gang,accelerator,placement,partner,steps_per_s,partner_steps_per_s
big,1,v100,,,60,
big,1,k80,,,20,
small,1,v100,,,50,
small,1,k80,,,40,
big,2,v100,,,80,
big,2,k80,,,30,
big,3,v100,,,90,
big,3,k80,,,40,
"""
_SERVER = """
from fairlead.live import journal
journal._EVENTS_PER_STATE = 40  # so that states are saved every few seconds
from fairlead.cli.main import run
run()
"""
_DISK_MIB = 64
TENANTS = ("red", "blue", "green")
COPIES_POLICY = "hadare:restart-s=0.1"
ELASTIC_POLICY = "gandiva:grow-after-s=1"


@dataclass
class KillSite:
    """One directory with a server that is restarted whenever it has died."""

    home: Path
    database: str | None = None
    round_s: float = 3.0
    devices: str = "v100=3,k80=3"
    offload_gib: float = 0.0
    """host memory for parked processes; 0: none park"""
    copies: bool = False
    """whether jobs of one device train in copies, on both nodes"""
    elastic: bool = False
    """whether gangs change their size, between one device and three"""
    process: "subprocess.Popen[bytes] | None" = None
    starts: int = 0
    submitted: int = 0
    known: dict[str, int] = field(default_factory=dict)
    """job → total steps, for all acknowledged submissions"""
    clock: ShiftedClock | None = None
    mounted: bool = False
    _client: Client | None = None

    def __post_init__(self) -> None:
        for name in ("steps", "results", "devices", "meetings", "crashes", "data"):
            (self.home / name).mkdir()
        (self.home / "speeds.csv").write_text(_SPEEDS, encoding="ascii")
        (self.home / "complaints").touch()
        self._port = free_port()
        if not shifted_clock.missing():
            self.clock = ShiftedClock(self.home)
        if os.geteuid() == 0:
            options = f"size={_DISK_MIB}m,mode=0700"
            command = ["mount", "-t", "tmpfs", "-o", options, "fairlead-kills", str(self.data)]
            self.mounted = (
                subprocess.run(command, capture_output=True, check=False).returncode == 0
            )

    @property
    def data(self) -> Path:
        """The server's data directory, on a small separate disk where possible."""
        return self.home / "data"

    # -- the server -----------------------------------------------------------------------------

    def start(self) -> None:
        """Start the server without waiting for it."""
        command = [sys.executable, "-c", _SERVER, "serve", "--data", str(self.data)]
        command += ["--port", str(self._port), "--round", f"{self.round_s:g}"]
        command += ["--emulate", self.devices, "--speeds", str(self.home / "speeds.csv")]
        command += ["--create-tenants", "--offload-memory", f"{self.offload_gib:g}"]
        if self.policies[0]:
            command += ["--policy", self.policies[0]]
        clean = {k: v for k, v in os.environ.items() if not k.startswith("FAIRLEAD_")}
        environment = {**clean, **self._environment}
        if self.database is not None:
            environment["FAIRLEAD_DATABASE"] = self.database
        with (self.home / "server.log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        self.starts += 1

    @property
    def _environment(self) -> dict[str, str]:
        shifted = self.clock.environment if self.clock is not None else {}
        return {failpoints.VARIABLE: str(self.home / "crashes"), **shifted}

    @property
    def policies(self) -> tuple[str, ...]:
        """Policies of the server: the first at its start, empty for the default."""
        if self.copies and self.elastic:
            return COPIES_POLICY, ELASTIC_POLICY, ELASTIC_POLICY
        if self.copies:
            return COPIES_POLICY, COPIES_POLICY, "max-min"
        return (ELASTIC_POLICY if self.elastic else "", "max-min", "hierarchical", "srtf")

    def supervise(self) -> None:
        """Restart the server if it has died."""
        if self.process is None or self.process.poll() is not None:
            self.start()

    def kill(self) -> bool:
        """Kill the server; return whether it was alive."""
        if self.process is None or self.process.poll() is not None:
            return False
        self.process.kill()
        self.process.wait()
        return True

    def wait_until_up(self, timeout_s: float = 120.0) -> None:
        """Wait until the server answers."""
        until = time.monotonic() + timeout_s
        while self.jobs() is None:
            assert time.monotonic() < until, "the server does not start"
            self.supervise()
            time.sleep(0.1)

    # -- clients --------------------------------------------------------------------------------

    @property
    def client(self) -> Client:
        """A client with the admin token."""
        if self._client is None:
            token = self.data / "admin.token"
            if not token.exists():
                raise ServerError("the server has never started")
            url = f"http://127.0.0.1:{self._port}"  # the same thread restarts the server
            self._client = Client(url, token.read_text(), reconnect_s=0.0)
        return self._client

    def jobs(self) -> list[dict[str, Any]] | None:
        """Return all jobs known to the server, None without an answer."""
        try:
            jobs: list[dict[str, Any]] = self.client.get("/v1/jobs")
        except ServerError:
            return None
        return jobs

    def submit(self, *, steps: int, gang: int, workload: str) -> bool:
        """Submit a job; return whether the server acknowledged it."""
        self.submitted += 1
        forks, resizes = self.copies and gang == 1, self.elastic and gang > 1
        job_environment = {"FAIRLEAD_CHECKPOINT_S": "0.4", **self._environment}
        try:
            job = self.client.submit(
                [sys.executable, train.__file__, str(self.home), str(steps), *["copies"] * forks],
                name=f"n{self.submitted}",
                tenant=TENANTS[self.submitted % len(TENANTS)],
                workload=workload,
                gang=gang,
                steps=steps,
                max_copies=2 if forks else None,
                min_gang=1 if resizes else None,
                max_gang=3 if resizes else None,
                retries=1000,
                grace_s=5.0,
                directory=str(self.home),
                environment=job_environment,
            )
        except ServerError:
            return False  # the job may exist nevertheless, and must then finish
        self.known[job["id"]] = steps
        return True

    def leases(self, job_id: str) -> list[dict[str, Any]] | None:
        """Return the records of a job's leases, None if there are more than the server keeps."""
        view = self.client.get(f"/v1/jobs/{job_id}/leases")
        ended: list[dict[str, Any]] = view["ended"]
        return ended if len(ended) == view["leases"] else None

    def change_policy(self, policy: str, round_s: float) -> None:
        """Change the policy of the running server; it may die meanwhile."""
        with contextlib.suppress(ServerError):
            self.client.ask("PUT", "/v1/policy", {"policy": policy, "round_s": round_s})

    def unfinished(self) -> int | None:
        """Return the number of unfinished jobs, None without an answer."""
        jobs = self.jobs()
        return None if jobs is None else sum(job["state"] not in TERMINAL_STATES for job in jobs)

    # -- processes ------------------------------------------------------------------------------

    def running(self) -> list[tuple[int, list[int]]]:
        """Return the keeper and members of every lease with a live keeper."""
        leases = []
        for directory in sorted((self.data / "leases").glob("*")):
            with contextlib.suppress(OSError, ValueError):
                if (directory / "exit.json").exists() or not lease_dir.is_alive(directory):
                    continue
                members = lease_dir.read_json(directory / "members.json")
                if members is not None:
                    leases.append((int(members["keeper"]), [int(m) for m in members["members"]]))
        return leases

    def clean_up(self) -> None:
        """Kill all processes and unmount the disk."""
        self.kill()
        for keeper, _ in self.running():
            with contextlib.suppress(ProcessLookupError):
                os.kill(keeper, signal.SIGKILL)
        if self._client is not None:
            self._client.close()
        if self.mounted:
            subprocess.run(["umount", "-l", str(self.data)], check=True)
            self.mounted = False
