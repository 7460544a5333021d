"""``fairlead serve`` on a real cluster, and jobs that record the times of their steps."""

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Self

from tests.e2e.support.certificates import make_certificate
from tests.e2e.support.trained_line import LINE
from tests.support.ports import free_port

from fairlead.client import Client, ServerError
from fairlead.engines.keeper import lease_dir

# The job also writes a line per lease with the times of its first and last step.
TRAIN = (
    LINE
    + """
run, line, losses = job.attach(), Line(), {"seen": []}
run.register(line=line, losses=losses)
if len(sys.argv) > 3: run.register(ballast={"": os.urandom(int(sys.argv[3]))})
made = {"lease": int(os.environ["FAIRLEAD_LEASE"]), "began": None, "ended": None, "steps": 0}
made["emulated_steps_per_s"] = float(os.environ.get("FAIRLEAD_EMULATED_STEPS_PER_S", "0"))
try:
    for i in run.steps(range(int(sys.argv[1]))):
        made["began"] = made["began"] or time.time()
        losses["seen"].append(line.step(i))
        made["ended"] = time.time()
        made["steps"] += 1
finally:
    with open(f"{sys.argv[2]}.{run.rank}.leases", "a") as file:
        print(json.dumps(made), file=file)
with open(f"{sys.argv[2]}.{run.rank}", "w") as file:
    json.dump({"a": line.a, "b": line.b, **losses}, file)
"""
)

SPEEDS = "workload,gang,accelerator,placement,partner,steps_per_s,partner_steps_per_s\n" + "".join(
    f"{workload},{gang},{accelerator},,,{speed * (1 + gang) / 2:g},\n"
    for workload, speeds in {
        "big": {"v100": 100, "p100": 50, "k80": 20},
        "small": {"v100": 100, "p100": 90, "k80": 60},
        "uneven": {"v100": 100, "p100": 25, "k80": 110},
        "steep": {"v100": 100, "p100": 4, "k80": 110},
    }.items()
    for accelerator, speed in speeds.items()
    for gang in (1, 2, 3)
)


def note(text: str) -> None:
    """Print a measurement; ``pytest -s`` shows it."""
    sys.stdout.write(f"{text}\n")


class ClusterServer:
    """A server in a separate directory."""

    engine: str
    """value of ``--engine`` without ``silence-s``"""
    silence_s = 30.0
    """seconds after which a silent node is lost: a busy machine's nodes are not"""

    def __init__(self, root: Path, host: str = "127.0.0.1") -> None:
        self.root, self.data, self.host = root, root / "data", host
        self.tls: tuple[str, ...] = ()
        self.speeds = root / "speeds.csv"
        self.speeds.write_text(SPEEDS)
        (root / "train.py").write_text(TRAIN)
        self.port = free_port(host)
        self.process: subprocess.Popen[bytes] | None = None
        self._client: Client | None = None

    def start(self, *, policy: str = "max-min", round_s: float = 6.0) -> Self:
        engine = f"{self.engine},silence-s={self.silence_s:g}"
        command = [sys.executable, "-m", "fairlead", "serve", "--data", str(self.data)]
        command += ["--host", self.host, "--port", str(self.port), *self.tls]
        command += ["--round", str(round_s), "--policy", policy, "--create-tenants"]
        command += ["--speeds", str(self.speeds), "--engine", engine, "--log-format", "json"]
        with (self.root / "server.log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        self.until(self._answers, "the server to answer", 120.0)
        return self

    def _answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.log()
        with contextlib.suppress(ServerError, FileNotFoundError):
            self.client.get("/v1/jobs")
            return True
        return False

    @property
    def client(self) -> Client:
        if self._client is None:
            token = (self.data / "admin.token").read_text()
            scheme = "https" if self.tls else "http"
            self._client = Client(f"{scheme}://{self.host}:{self.port}", token)
        return self._client

    def with_certificate(self) -> Self:
        """Use TLS, which the server requires beyond loopback."""
        self.tls = make_certificate(self.root, self.host)
        return self

    def submit(self, name: str, steps: int, *ballast: int, **settings: Any) -> str:
        """Submit a job that trains a line, with ``ballast`` bytes in its checkpoints."""
        command = [sys.executable, str(self.root / "train.py"), str(steps), str(self.root / name)]
        command += map(str, ballast)
        return str(self.client.submit(command, name=name, steps=steps, **settings)["id"])

    def until_steps(self, *jobs: str, made: int = 0) -> None:
        """Wait until each job has made more than this number of steps."""
        for job in jobs:
            self.until(partial(self._has_made, job, made), f"steps of {job}")

    def _has_made(self, job: str, steps: int) -> bool:
        return bool(self.client.job(job)["steps_done"] > steps)

    def is_in_state(self, job: str, state: str) -> bool:
        return bool(self.client.job(job)["state"] == state)

    def leases(self) -> dict[str, list[str]]:
        """Return job → nodes on which it runs now, by the lease directories."""
        nodes_of = {}
        for path in (self.data / "leases").glob("*"):
            with contextlib.suppress(FileNotFoundError):  # the directory may be removed meanwhile
                order = lease_dir.read_order(path)
                parts = list(path.glob("[0-9]*"))
                running = all((part / "members.json").exists() for part in parts)
                if running and not (path / "exit.json").exists():
                    nodes_of[order.job] = sorted({node for node, _ in order.devices})
        return nodes_of

    def until(self, holds: Callable[[], bool], what: str, patience_s: float = 90.0) -> float:
        """Wait until a condition holds; return the seconds that it took."""
        began = time.monotonic()
        while not holds():
            assert time.monotonic() < began + patience_s, f"{what}\n{self.log()}"
            time.sleep(0.05)
        return time.monotonic() - began

    def log(self) -> str:
        return (self.root / "server.log").read_text()[-6000:]

    def made(self, name: str) -> list[dict[str, Any]]:
        """Return the records of rank 0 of a job, one per lease, with the times of its steps."""
        lines = (self.root / f"{name}.0.leases").read_text().splitlines()
        return [json.loads(line) for line in lines]

    def log_events(self, event: str) -> list[dict[str, Any]]:
        """Return the entries of the server's log with this event."""
        lines = (self.root / "server.log").read_text().splitlines()
        entries = [json.loads(line) for line in lines if line.startswith("{")]
        return [entry for entry in entries if entry.get("event") == event]

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        if self._client is not None:
            self._client.close()
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            self.process.wait(60)
