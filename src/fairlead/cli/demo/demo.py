"""``fairlead demo``."""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairlead.cli.demo.clusters import DemoEngine
from fairlead.cli.demo.results import conclude

if TYPE_CHECKING:
    from fairlead.cli.demo.clusters import DemoCluster
    from fairlead.client import Client
    from fairlead.demo.contention import ContentionMeter
    from fairlead.demo.scenario import DemoJob

_START_TIMEOUT_S = 120.0
"""seconds until a server that lives but does not answer counts as not started"""
_NEXT = """
Next steps:
  fairlead demo --keep   keep the server and its web pages; in another shell,
                         with its FAIRLEAD_DATA: fairlead jobs, explain j1,
                         shares, audit --live
  fairlead compare       compare policies in one report
  fairlead serve --emulate v100=2,k80=4
                         run your own jobs: fairlead submit --help"""


def demo(
    jobs: Annotated[int, typer.Option(help="Number of jobs.", min=3)] = 21,
    engine: Annotated[
        DemoEngine,
        typer.Option(help="Engine; the demo starts a private cluster for slurm and ray."),
    ] = DemoEngine.LOCAL,
    port: Annotated[int, typer.Option(help="Port of the server.")] = 8652,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep the server running until Ctrl-C.")
    ] = False,
) -> None:
    """Run a small cluster for about two minutes: real training processes on emulated devices.

    Three tenants submit jobs to a server with eight devices of three accelerators. At the end,
    compare their shares with their entitlements, and completion times with the simulator's and
    with those of a scheduler that ignores accelerators.

    Example:  fairlead demo --engine slurm
    """
    from fairlead.cli.demo.clusters import demo_cluster
    from fairlead.cli.shared.output import messages
    from fairlead.demo.scenario import demo_jobs

    data = Path(tempfile.mkdtemp(prefix="fairlead-demo-"))
    data.chmod(0o755)  # a cluster's nodes pass through it
    planned = demo_jobs(jobs)
    with demo_cluster(engine, data) as cluster:
        (data / "data").mkdir(mode=0o700)
        server = start(data / "data", port, cluster)
        try:
            client = connect(data / "data", port, server)
            messages.print(f"web pages on http://127.0.0.1:{port}")
            messages.print(f"log in with the token in {data}/data/admin.token", highlight=False)
            messages.print(f"{jobs} jobs on {cluster.about}; about two minutes", highlight=False)
            ids = submit(client, planned)
            meter = _watch(client, len(planned))
            well = conclude(client, planned, ids, meter, cluster.round_s)
            if keep:
                messages.print(f"web pages still on http://127.0.0.1:{port}; Ctrl-C ends them")
                messages.print(f"FAIRLEAD_DATA={data}/data fairlead jobs", highlight=False)
                server.wait()
        finally:
            server.terminate()
            server.wait(20)
    if not keep:
        messages.print(_NEXT, highlight=False)
    if not well:
        raise typer.Exit(1)


def start(
    data: Path, port: int, cluster: "DemoCluster | None" = None
) -> "subprocess.Popen[bytes]":
    """Start the demo's server as a separate process, by default with the local engine."""
    from fairlead.demo.scenario import DEVICES, ROUND_S

    options = ("--emulate", DEVICES) if cluster is None else cluster.options
    round_s = ROUND_S if cluster is None else cluster.round_s
    command = [sys.executable, "-m", "fairlead", "serve", "--data", str(data)]
    command += ["--port", str(port), "--round", str(round_s), *options]
    environment = {**os.environ, **(cluster.environment if cluster else {})}
    with (data / "server.log").open("ab") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, env=environment)


def connect(data: Path, port: int, server: "subprocess.Popen[bytes]") -> "Client":
    """Return a client as soon as the server answers."""
    from fairlead.client import Client, ServerError

    until = time.monotonic() + _START_TIMEOUT_S
    while time.monotonic() < until and server.poll() is None:
        try:
            token = (data / "admin.token").read_text(encoding="ascii")
            client = Client(f"http://127.0.0.1:{port}", token)
            client.get("/v1/jobs")
            return client
        except (OSError, ServerError):
            time.sleep(0.1)
    message = (data / "server.log").read_text(encoding="utf-8")[-500:]
    raise ServerError(f"the server did not start: {message}")


def submit(client: "Client", planned: "list[DemoJob]") -> list[str]:
    """Submit the jobs at their arrival times; return their ids."""
    from fairlead.demo.scenario import TENANTS

    for tenant in TENANTS:
        client.ask("PUT", f"/v1/tenants/{tenant.id}", {"id": tenant.id, "weight": tenant.weight})
    ids, began = [], time.monotonic()
    for i, job in enumerate(planned):
        time.sleep(max(began + job.arrival_s - time.monotonic(), 0.0))
        job_view = client.submit(
            [sys.executable, "-m", "fairlead.demo.train", str(job.steps), str(i)],
            tenant=job.tenant,
            workload=job.workload,
            steps=job.steps,
            weight=job.weight,
            directory=os.getcwd(),
            # One thread per process: many processes share this machine's cores.
            environment={"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        )
        ids.append(job_view["id"])
    return ids


def _watch(client: "Client", count: int) -> "ContentionMeter":
    """Show the jobs' progress until all have ended; return the tenants' shares meanwhile."""
    from rich.live import Live

    from fairlead.cli.shared.output import messages
    from fairlead.client import TERMINAL_STATES
    from fairlead.demo.contention import ContentionMeter
    from fairlead.demo.scenario import TENANTS, devices, normal_speeds

    weights = {tenant.id: tenant.weight for tenant in TENANTS}
    meter = ContentionMeter(weights, normal_speeds(), devices())
    with Live(console=messages, refresh_per_second=2, transient=True) as shown:
        while True:
            jobs = client.get("/v1/jobs", limit=1000)
            meter.record(time.monotonic(), jobs, client.get("/v1/shares"))
            ended = sum(job["state"] in TERMINAL_STATES for job in jobs)
            if messages.is_terminal:
                shown.update(_jobs_table(jobs))
            if ended == count:
                return meter
            time.sleep(0.5)


def _jobs_table(jobs: list[dict[str, Any]]) -> Any:
    from rich.table import Table

    table = Table(title=f"{len(jobs)} jobs", title_justify="left")
    for head in ("job", "tenant", "workload", "state", "on", "progress", "loss", "moves"):
        table.add_column(head)
    for job in jobs:
        part = job["steps_done"] / (job["total_steps"] or 1)
        loss = job["metrics"].get("loss")
        table.add_row(
            job["id"],
            job["tenant"],
            job["workload"],
            job["state"],
            job["accelerator"] or "",
            "█" * round(20 * part) + "░" * (20 - round(20 * part)),
            "" if loss is None else f"{loss:.3f}",
            str(job["preemptions"]),
        )
    return table
