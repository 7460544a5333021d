"""Run the planned jobs on a real server, and record their leases."""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from benchmarks.live.__main__ import free_port
from benchmarks.physical.beliefs import BeliefReader, plan_s
from benchmarks.physical.record import JobRecord, Lease, RunRecord
from benchmarks.physical.scenario import PlannedJob, tenants_of

from fairlead.cli.demo import demo
from fairlead.client import Client, ServerError
from fairlead.model.errors import InputError
from fairlead.submitted_job import SubmittedJob

_POLL_S = 0.5
_CANCEL_S = 30.0
_INHERITED = "PYTHONPYCACHEPREFIX,PYTHONWARNINGS"
"""variables of Python that jobs get besides the usual ones"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings of the server."""

    policy: str
    speeds: str
    engine: str = "local"
    round_s: float = 15.0
    offload_gib: float = 64.0
    emulate: str | None = None
    """devices to emulate; None: the machine's GPUs"""

    def options(self) -> list[str]:
        """Return the options of ``fairlead serve``."""
        options = ["--policy", self.policy, "--speeds", self.speeds, "--trust-jobs"]
        options += ["--engine", self.engine]
        options += ["--round", str(self.round_s), "--offload-memory", str(self.offload_gib)]
        options += ["--job-environment", _INHERITED]
        return options if self.emulate is None else [*options, "--emulate", self.emulate]


@contextlib.contextmanager
def server(settings: Settings) -> Iterator[tuple[Client, Path]]:
    """Run a server with an empty data directory; yield a client of it, and the directory.

    At the end, by SIGTERM as well, jobs that have not ended are cancelled.
    """
    signal.signal(signal.SIGTERM, _stop)
    with tempfile.TemporaryDirectory(prefix="fairlead-physical-") as name:
        data, port = Path(name) / "data", free_port()
        data.mkdir()
        command = [sys.executable, "-m", "fairlead", "serve", "--data", str(data)]
        command += ["--port", str(port), *settings.options()]
        with (data / "server.log").open("wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log)
        client = None
        try:
            client = demo.connect(data, port, process)
            yield client, data
        except BaseException:
            print((data / "server.log").read_text(encoding="utf-8")[-3000:], file=sys.stderr)
            raise
        finally:
            if client is not None:
                cancel_all(client)
            process.terminate()
            process.wait(60)


def _stop(number: int, frame: object) -> NoReturn:
    del frame
    sys.exit(128 + number)


def cancel_all(client: Client) -> None:
    """Cancel all jobs and wait for their ends: their processes would outlive the server.

    Prints the logs of jobs that have failed.
    """
    with contextlib.suppress(ServerError, TimeoutError):
        left = []
        for job in client.jobs():
            if job.state == "failed":
                print(f"{job.name or job.id} failed: {client.logs(job.id)[-2000:]}", flush=True)
            elif not job.has_ended:
                left.append(job.id)
                with contextlib.suppress(ServerError):  # it ends meanwhile
                    client.cancel(job.id, force=True)
        client.wait_all(left, timeout_s=_CANCEL_S)


def run(settings: Settings, jobs: Sequence[PlannedJob], *, timeout_s: float) -> RunRecord:
    """Submit the jobs at their times, wait for their ends, and return the record."""
    with server(settings) as (client, data):
        for tenant in tenants_of({job.tenant for job in jobs}):
            body = {"id": tenant.id, "weight": tenant.weight}
            client.ask("PUT", f"/v1/tenants/{tenant.id}", body)
        devices = _devices(client)
        ids = _submit(client, jobs)
        reader = BeliefReader(data)
        ended = _wait(client, ids, timeout_s, reader.poll)
        plan_seconds = plan_s(client)
        leases = [client.get(f"/v1/jobs/{job_id}/leases")["ended"] for job_id in ids]
    first_at = min(job["submitted_at"] for job in ended)
    return RunRecord(
        policy=settings.policy,
        round_s=settings.round_s,
        devices=devices,
        speeds=settings.speeds,
        jobs=[
            JobRecord(
                workload=planned.workload,
                tenant=planned.tenant,
                steps=planned.steps,
                arrival_s=round(job["submitted_at"] - first_at, 3),
                ended_s=round(job["ended_at"] - first_at, 3),
                leases=[_lease(lease, first=i == 0) for i, lease in enumerate(listed)],
            )
            for planned, job, listed in zip(jobs, ended, leases, strict=True)
        ],
        beliefs=reader.beliefs(first_at),
        plan_s=round(plan_seconds, 4),
        hands_over=settings.offload_gib > 0,
    )


def _devices(client: Client) -> list[str]:
    return [
        accelerator
        for node in client.get("/v1/nodes")
        for accelerator, count in node["devices"].items()
        for _ in range(count)
    ]


def _submit(client: Client, jobs: Sequence[PlannedJob]) -> list[str]:
    ids, began = [], time.monotonic()
    for job in jobs:
        time.sleep(max(began + job.arrival_s - time.monotonic(), 0.0))
        model, _, batch_size = job.workload.rpartition("-")
        command = [sys.executable, "-m", "benchmarks.physical.train", model]
        command += ["--batch-size", batch_size, "--steps", str(job.steps)]
        submitted = client.submit(
            command,
            tenant=job.tenant,
            workload=job.workload,
            steps=job.steps,
            directory=os.getcwd(),
            environment={"OMP_NUM_THREADS": "2"},
        )
        ids.append(submitted.id)
    return ids


def _wait(
    client: Client, ids: Sequence[str], timeout_s: float, poll: Callable[[], None]
) -> list[SubmittedJob]:
    """Return the jobs once all have finished; raise InputError if one has not.

    Calls ``poll`` regularly.
    """
    until = time.monotonic() + timeout_s
    while True:
        jobs = [client.job(job_id) for job_id in ids]
        poll()
        for job in jobs:
            if job.has_ended and not job.has_succeeded:
                _, log = client.text("GET", f"/v1/jobs/{job.id}/logs")
                raise InputError(f"{job.id} {job.state}", fix=log[-2000:].decode(), field="jobs")
        if all(job.has_ended for job in jobs):
            return jobs
        if time.monotonic() > until:
            left = ", ".join(
                f"{job.id} {job.state} {job.steps_done:g}" for job in jobs if not job.has_ended
            )
            raise InputError(f"not ended: {left}", fix="expected a longer --timeout")
        time.sleep(_POLL_S)


def _lease(view: dict[str, Any], *, first: bool) -> Lease:
    (accelerator,) = view["accelerators"]
    start_s, end_s = view["start_s"], view["end_s"]
    return Lease(
        accelerator=accelerator,
        is_first=first,
        began=view["began"],
        left=view["left"],
        held_s=round(view["ended_at"] - view["started_at"], 3),
        steps=view["steps"],
        start_s=None if start_s is None else round(start_s, 3),
        end_s=None if end_s is None else round(end_s, 3),
    )
