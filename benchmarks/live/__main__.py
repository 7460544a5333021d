"""Throughput of one live server on one core: submissions, renewals, reads, and plans.

    python -m benchmarks.live [--quick] [--json]

A real ``fairlead serve`` on SQLite is pinned to one core; its engine is a plug-in that starts no
processes, so that it can have a thousand devices (engine.py). Rates are per second of wall time
and per second of CPU time of the server, which varies less on a busy machine. Limits are
those of ranges.toml; a broken one makes the exit status 1.
"""

import argparse
import contextlib
import itertools
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from benchmarks.live.engine import LEASES
from benchmarks.live.load import Ask, all_of, paced
from benchmarks.ranges import report

from fairlead.client import Client, ServerError
from fairlead.data import DEFAULT_SPEEDS
from fairlead.files import read_speeds

HERE = Path(__file__).parents[1]
JOBS, DEVICES, PLANNED = 10_000, 1_000, 2_000
TENANTS = 20
READS = {
    "page of 1,000 jobs": "/v1/jobs?limit=1000&after={after}",
    "running jobs of a tenant": "/v1/jobs?state=running&tenant=team-3",
    "one job": "/v1/jobs/j77",
    "shares": "/v1/shares",
    "nodes": "/v1/nodes",
    "metrics": "/metrics",
}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Server:
    """``fairlead serve`` with the still engine, on the first core that this process may use."""

    def __init__(self, root: Path, *, devices: int, round_s: float) -> None:
        plugin = root / "fairlead_still-1.dist-info"
        plugin.mkdir()
        (plugin / "METADATA").write_text("Metadata-Version: 2.1\nName: fairlead-still\nVersion: 1")
        (plugin / "entry_points.txt").write_text(
            "[fairlead.engines]\nstill = benchmarks.live.engine:PLUGIN\n"
        )
        port = free_port()
        self.data, self.url = root / "data", f"http://127.0.0.1:{port}"
        command = [sys.executable, "-m", "fairlead", "serve", "--data", self.data]
        command += ["--port", port, "--engine", f"still:devices={devices}", "--round", round_s]
        command += ["--create-tenants"]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(root), str(HERE.parent)])}
        environment |= {"OPENBLAS_NUM_THREADS": "1", "FAIRLEAD_REQUESTS_PER_S": "1e9"}
        self._log = root / "server.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [str(part) for part in command], stdout=log, stderr=log, env=environment
            )
        os.sched_setaffinity(self._process.pid, {min(os.sched_getaffinity(0))})
        self.client = self._connect()
        self.token = (self.data / "admin.token").read_text()

    def _connect(self) -> Client:
        until = time.monotonic() + 60
        while time.monotonic() < until and self._process.poll() is None:
            with contextlib.suppress(OSError, ServerError):
                client = Client(self.url, (self.data / "admin.token").read_text())
                client.get("/v1/about")
                return client
            time.sleep(0.1)
        raise SystemExit(self._log.read_text()[-2000:])

    @property
    def cpu_s(self) -> float:
        """CPU seconds that the server has used."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def decisions_s(self) -> tuple[float, float]:
        """Return the median and the 99th percentile of recent decision times."""
        quantiles = self.quantiles("fairlead_decision_seconds")
        return quantiles["0.5"], quantiles["0.99"]

    def quantiles(self, metric: str) -> dict[str, float]:
        """Return quantile → value of a metric."""
        _, _, text = self.client.raw("GET", "/metrics")
        return {
            line.split('"')[1]: float(line.split()[-1])
            for line in text.decode().splitlines()
            if line.startswith(f"{metric}{{")
        }

    def stop(self) -> None:
        self.client.close()
        self._process.terminate()
        self._process.wait(30)


@contextlib.contextmanager
def server(*, devices: int, round_s: float) -> Iterator[Server]:
    with tempfile.TemporaryDirectory(prefix="fairlead-live-") as name:
        running = Server(Path(name), devices=devices, round_s=round_s)
        try:
            yield running
        finally:
            running.stop()


def new_jobs(token: str) -> Iterator[Ask]:
    """Yield submissions of all workloads of the speed table by twenty tenants."""
    workloads = sorted(read_speeds(DEFAULT_SPEEDS).workloads)
    for i in itertools.count():
        job = {
            "command": ["python", "train.py", "--seed", str(i)],
            "name": f"try-{i}",
            "tenant": f"team-{i % TENANTS}",
            "workload": workloads[i % len(workloads)],
            "steps": 1_000_000 + i,
        }
        yield Ask("POST", "/v1/jobs", token, job)


def renewals(data: Path) -> Iterator[Ask]:
    """Yield renewals of all started leases, repeatedly."""
    lines = (data / LEASES).read_text().splitlines()
    leases = {job: (lease, token) for lease, token, job in (line.split() for line in lines)}
    for step in itertools.count(1):
        body = {"rank": 0, "started": step, "steps": step, "steps_per_s": 2.5}
        for lease, token in leases.values():
            yield Ask("POST", f"/v1/leases/{lease}/renew", token, body)


def rate(server: Server, asks: Iterator[Ask], count: int) -> tuple[float, float]:
    """Return requests per second of wall time and per second of the server's CPU time."""
    began, used = time.perf_counter(), server.cpu_s
    all_of(server.url, itertools.islice(asks, count), connections=8)
    return count / (time.perf_counter() - began), count / (server.cpu_s - used)


def reads(server: Server, name: str, path: str, count: int) -> dict[str, float]:
    """Return the 99th percentile of the latency of reads, and the server's CPU time per read.

    The machine may be shared: the best of three tries counts.
    """
    p99, cpu_s = [], []
    for _ in range(3):
        used = server.cpu_s
        asks = itertools.repeat(Ask("GET", path, server.token), count)
        took = all_of(server.url, asks, connections=1)
        p99.append(float(np.quantile(took, 0.99)))
        cpu_s.append((server.cpu_s - used) / count)
    return {f"{name}, p99 ms": 1e3 * min(p99), f"{name}, CPU ms": 1e3 * min(cpu_s)}


def answering(quick: bool) -> dict[str, float]:
    """Return the figures with many jobs and no plan in progress."""
    jobs = JOBS // 5 if quick else JOBS
    figures: dict[str, float] = {}
    with server(devices=DEVICES, round_s=3600) as running:
        asks = new_jobs(running.token)
        wall, cpu = rate(running, asks, jobs)
        figures["submissions/s"], figures["submissions/CPU s"] = wall, cpu
        time.sleep(1.0)
        best = [rate(running, renewals(running.data), 2_000) for _ in range(1 if quick else 3)]
        figures["renewals/s"] = max(wall for wall, _ in best)
        figures["renewals/CPU s"] = max(cpu for _, cpu in best)
        for name, path in READS.items():
            figures |= reads(running, name, path.format(after=jobs // 2), 20 if quick else 100)
    return figures


def planning(quick: bool) -> dict[str, float]:
    """Return the times of plans, and of reads meanwhile, as hundreds of devices are reassigned."""
    seconds = 12.0 if quick else 30.0
    with server(devices=DEVICES, round_s=2.0) as running:
        all_of(running.url, itertools.islice(new_jobs(running.token), PLANNED), connections=8)
        time.sleep(3.0)
        paths = ("/v1/jobs/j77", "/v1/shares", "/v1/jobs?limit=100", "/v1/nodes")
        asks = itertools.cycle(Ask("GET", path, running.token) for path in paths)
        took = paced(running.url, asks, per_s=20.0, seconds=seconds)
        median, worst = running.decisions_s()
    return {
        "plan of 2,000 jobs on 1,000 devices, s": median,
        "plan of 2,000 jobs on 1,000 devices, p99 s": worst,
        "reads while planning, p99 ms": 1e3 * float(np.quantile(took, 0.99)),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer jobs, shorter")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    figures = {**answering(options.quick), **planning(options.quick)}
    return report("live", figures, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
