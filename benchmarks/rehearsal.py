"""The whole control plane at full scale: a real server, launches, preemptions and renewals.

    python -m benchmarks.rehearsal [--nodes 1000] [--jobs 5000] [--round 60] [--json] [--check]
    python -m benchmarks.rehearsal --engine slurm --nodes 60 --jobs 120

With the engine ``rehearsal`` nodes and jobs are simulated, but the server, its store, its
decisions, the engine's protocol and every renewal over HTTP are those of a real cluster. With
``slurm`` a private Slurm is started with that many node daemons, and jobs are processes. All jobs
are submitted at the start; the run ends when all have finished.
"""

import argparse
import contextlib
import json
import os
import random
import re
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.ranges import report

from fairlead.client import Client, ServerError
from fairlead.data import DEFAULT_SPEEDS
from fairlead.files import read_speeds
from fairlead.model.cluster import Node
from fairlead.private_clusters.slurm import SlurmCluster

GANGS = (1,) * 14 + (2,) * 2 + (4,) * 3 + (8,)  # Gavel's mix: 70 %, 10 %, 15 %, 5 %
NODE_SHARES = {"v100": 0.3, "p100": 0.3, "k80": 0.4}
TENANTS = 20
USERS = 16
CLOCK_TICKS = os.sysconf("SC_CLK_TCK")


class Server:
    """``fairlead serve`` in a temporary directory, with its resource usage."""

    def __init__(self, root: Path, options: list[str], *, profile: bool = False) -> None:
        self.data = root / "data"
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        python = [sys.executable, "-X", "utf8"]
        if profile:
            python += ["-m", "cProfile", "-o", "rehearsal.prof"]
        command = [*python, "-m", "fairlead", "serve", "--data", str(self.data)]
        command += ["--port", str(port), "--log-format", "json", "--create-tenants", *options]
        self.log = root / "server.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        self.url = f"http://127.0.0.1:{port}"
        self.client = self._connect()

    def _connect(self) -> Client:
        until = time.monotonic() + 60
        while time.monotonic() < until and self.process.poll() is None:
            with contextlib.suppress(OSError, ServerError):
                client = Client(self.url, (self.data / "admin.token").read_text())
                client.get("/v1/jobs")
                return client
            time.sleep(0.1)
        sys.exit(self.log.read_text()[-2000:])

    def used(self) -> tuple[float, float]:
        """Return its CPU seconds and its peak memory in MB."""
        stat = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(") ")[2].split()
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        most = re.search(r"VmHWM:\s+(\d+)", status)
        assert most is not None
        return (int(stat[11]) + int(stat[12])) / CLOCK_TICKS, int(most[1]) / 1000

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)
        pid = self.data / "rehearsal/pid"
        if pid.exists():
            os.kill(int(pid.read_text()), signal.SIGTERM)


class Answers(threading.Thread):
    """Measures the latency of a small request twice per second."""

    def __init__(self, url: str, token: str) -> None:
        super().__init__(daemon=True)
        self.client = Client(url, token)
        self.times_s: list[float] = []
        self.over = threading.Event()

    def run(self) -> None:
        while not self.over.wait(0.5):
            began = time.perf_counter()
            self.client.get("/v1/jobs", limit=1)
            self.times_s.append(time.perf_counter() - began)


def draw(jobs: int, seconds: float, seed: int, most: int) -> Iterator[dict[str, Any]]:
    """Yield jobs that take 0.5 to 1.5 times ``seconds`` alone on a v100."""
    speeds = read_speeds(DEFAULT_SPEEDS)
    rng = random.Random(seed)
    for _ in range(jobs):
        workload = rng.choice(sorted(speeds.workloads))
        gang = min(rng.choice(GANGS), most)
        speed = speeds.speed(workload, ("v100",) * gang)
        steps = max(int(seconds * rng.uniform(0.5, 1.5) * speed), 1)
        tenant = f"t{rng.randrange(TENANTS)}"
        yield {"workload": workload, "gang": gang, "steps": steps, "tenant": tenant}


@contextlib.contextmanager
def started(options: argparse.Namespace, root: Path) -> Iterator[Server]:
    timing = ["--round", str(options.round), "--policy", options.policy]
    if options.engine == "rehearsal":
        parts = []
        for accelerator, part in NODE_SHARES.items():
            count = int(options.nodes * part) * options.devices
            parts.append(f"{accelerator}={count}/{options.devices}")
        flags = ["--engine", "rehearsal", "--emulate", ",".join(parts)]
        server = Server(root, [*flags, *timing], profile=options.profile)
        try:
            yield server
        finally:
            server.stop()
        return
    accelerators = [name for name, part in NODE_SHARES.items() for _ in range(int(10 * part))]
    nodes = [
        Node(f"n{i}", (accelerators[i % 10],) * options.devices, f"r{i // 16}")
        for i in range(options.nodes)
    ]
    cluster = SlurmCluster(root / "slurm", nodes, patience_s=600.0)
    try:
        began = time.monotonic()
        cluster.start()
        print(f"Slurm with {options.nodes} node daemons: {time.monotonic() - began:.1f} s")
        os.environ.update(cluster.environment)
        engine = "slurm:emulate,start-within-s=600,silence-s=60"
        server = Server(root, ["--engine", engine, *timing])
        try:
            yield server
        finally:
            server.stop()
    finally:
        cluster.stop()


def measure(options: argparse.Namespace, root: Path) -> dict[str, float]:
    figures: dict[str, float] = {}
    command = ["sleep", str(options.seconds)]  # a rehearsal does not run it
    most = options.devices * (8 if options.engine == "rehearsal" else 1)
    with started(options, root) as server:
        client = server.client
        asking = Answers(server.url, (server.data / "admin.token").read_text())
        began = time.monotonic()
        _submit(server, command, list(draw(options.jobs, options.seconds, options.seed, most)))
        figures["jobs submitted a second"] = options.jobs / (time.monotonic() - began)
        asking.start()
        _wait(client, options, began)
        figures["seconds until all have finished"] = time.monotonic() - began
        asking.over.set()
        asking.join()
        figures |= _read(server, asking)
        used = server.data / "rehearsal/figures.json"
        if used.exists():
            figures |= {f"members: {k}": v for k, v in json.loads(used.read_text()).items()}
    return figures


def _submit(server: Server, command: list[str], jobs: list[dict[str, Any]]) -> None:
    """Submit jobs concurrently, as many users would: their jobs share transactions."""
    token = (server.data / "admin.token").read_text()

    def submit(mine: list[dict[str, Any]]) -> None:
        client = Client(server.url, token)
        for job in mine:
            client.submit(command, directory="/", retries=20, **job)

    with ThreadPoolExecutor(USERS) as users:
        list(users.map(submit, (jobs[i::USERS] for i in range(USERS))))


def _wait(client: Client, options: argparse.Namespace, began: float) -> None:
    while time.monotonic() - began < options.patience:
        time.sleep(2.0)
        text = client.raw("GET", "/metrics")[2].decode()
        now = {n: _metric(text, f"fairlead_jobs_{n}") for n in ("queued", "running")}
        if sys.stderr.isatty():
            print(f"\r{now['queued']:.0f} queued, {now['running']:.0f} run   ", end="", flush=True)
        if not any(now.values()):
            return
    sys.exit(f"not all jobs have finished within {options.patience} s")


def _metric(text: str, name: str) -> float:
    match = re.search(rf"^{re.escape(name)} (\S+)$", text, re.M)
    assert match is not None, name
    return float(match[1])


def _sum(text: str, name: str) -> float:
    """Return the sum of a metric over its labels."""
    return sum(map(float, re.findall(rf"^{re.escape(name)}\{{.*\}} (\S+)$", text, re.M)))


def _read(server: Server, asking: Answers) -> dict[str, float]:
    text = server.client.raw("GET", "/metrics")[2].decode()
    figures = {
        f"decision s, {q}": _metric(text, f'fairlead_decision_seconds{{quantile="{q}"}}')
        for q in ("0.5", "0.99", "1.0")
    }
    figures |= {
        f"round s, {q}": _metric(text, f'fairlead_round_seconds{{quantile="{q}"}}')
        for q in ("0.5", "0.99", "1.0")
    }
    starts = [
        json.loads(line)["timestamp"]
        for line in server.log.read_text().splitlines()
        if '"lease.started"' in line
    ]
    by_second: dict[str, int] = {}
    for at in starts:
        by_second[at[:19]] = by_second.get(at[:19], 0) + 1
    figures["leases started"] = len(starts)
    figures["most leases started in a second"] = max(by_second.values())
    figures["preemptions"] = _sum(text, "fairlead_preemptions_total")
    figures["failures"] = _sum(text, "fairlead_lease_failures_total")
    times = sorted(asking.times_s)
    figures["answer s, median"] = times[len(times) // 2]
    figures["answer s, 99 %"] = times[int(0.99 * len(times))]
    figures["answer s, most"] = times[-1]
    figures["server CPU s"], figures["server MB"] = server.used()
    return figures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--engine", choices=("rehearsal", "slurm"), default="rehearsal")
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--devices", type=int, default=4, help="of each node")
    parser.add_argument("--jobs", type=int, default=5000)
    parser.add_argument("--round", type=float, default=60.0)
    parser.add_argument("--seconds", type=float, default=90.0, help="that a job takes alone")
    parser.add_argument("--policy", default="max-min")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--patience", type=float, default=1800.0)
    parser.add_argument("--profile", action="store_true", help="write rehearsal.prof")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--check", action="store_true", help="hold it to ranges.toml")
    options = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with tempfile.TemporaryDirectory(prefix="fairlead-rehearsal-") as name:
        figures = measure(options, Path(name))
    return report("rehearsal", figures, as_json=options.json, applies=options.check)


if __name__ == "__main__":
    sys.exit(main())
