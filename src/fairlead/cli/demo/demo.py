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
    from fairlead.cli.demo.clusters import Site
    from fairlead.client import Client
    from fairlead.demo.contention import Contention
    from fairlead.demo.scenario import DemoJob

_NEXT = """
Look further:
  fairlead demo --keep     the server stays; elsewhere, with its FAIRLEAD_DATA:
                           fairlead jobs, explain j1, shares, audit --live
  fairlead compare         policies against each other, in one report
  fairlead serve --emulate v100=2,k80=4
                           your own jobs: fairlead submit --help"""


def demo(
    jobs: Annotated[int, typer.Option(help="How many jobs to run.", min=3)] = 21,
    engine: Annotated[
        DemoEngine,
        typer.Option(help="What starts processes; slurm and ray are started for the demo."),
    ] = DemoEngine.LOCAL,
    port: Annotated[int, typer.Option(help="Port of the server.")] = 8652,
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave the server running until Ctrl-C.")
    ] = False,
) -> None:
    """Run a small cluster for about two minutes: real training processes on emulated devices.

    Three tenants submit jobs to a server with eight devices of three kinds; at the end their
    shares stand against their entitlement, and completion times against the simulator's and
    against a scheduler that does not know what accelerators are.

    Example:  fairlead demo --engine slurm
    """
    from fairlead.cli.demo.clusters import site
    from fairlead.cli.shared.output import messages
    from fairlead.demo.scenario import demo_jobs

    data = Path(tempfile.mkdtemp(prefix="fairlead-demo-"))
    data.chmod(0o755)  # a cluster's nodes pass through it
    listed = demo_jobs(jobs)
    with site(engine, data) as place:
        (data / "data").mkdir(mode=0o700)
        server = start(data / "data", port, place)
        try:
            client = connect(data / "data", port, server)
            messages.print(f"server on http://127.0.0.1:{port}, data in {data}/data")
            messages.print(f"{jobs} jobs on {place.about}; about two minutes", highlight=False)
            ids = submit(client, listed)
            seen = _watch(client, len(listed))
            well = conclude(client, listed, ids, seen, place.round_s)
            if keep:
                messages.print(f"The server goes on: FAIRLEAD_DATA={data}/data fairlead jobs")
                server.wait()
        finally:
            server.terminate()
            server.wait(20)
    if not keep:
        messages.print(_NEXT, highlight=False)
    if not well:
        raise typer.Exit(1)


def start(data: Path, port: int, place: "Site | None" = None) -> "subprocess.Popen[bytes]":
    """Start the demo's server in a process of its own, on this machine if no place is given."""
    from fairlead.demo.scenario import DEVICES, ROUND_S

    options = ("--emulate", DEVICES) if place is None else place.options
    round_s = ROUND_S if place is None else place.round_s
    command = [sys.executable, "-m", "fairlead", "serve", "--data", str(data)]
    command += ["--port", str(port), "--round", str(round_s), *options]
    environment = {**os.environ, **(place.environment if place else {})}
    with (data / "server.log").open("ab") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, env=environment)


def connect(data: Path, port: int, server: "subprocess.Popen[bytes]") -> "Client":
    """Return a client of the server once that answers."""
    from fairlead.client import Client, ServerError

    until = time.monotonic() + 30
    while time.monotonic() < until and server.poll() is None:
        try:
            token = (data / "admin.token").read_text(encoding="ascii")
            client = Client(f"http://127.0.0.1:{port}", token)
            client.get("/v1/jobs")
            return client
        except (OSError, ServerError):
            time.sleep(0.1)
    said = (data / "server.log").read_text(encoding="utf-8")[-500:]
    raise ServerError(f"the server did not start: {said}")


def submit(client: "Client", listed: "list[DemoJob]") -> list[str]:
    """Submit the jobs at their times; return their ids."""
    from fairlead.demo.scenario import TENANTS

    for tenant in TENANTS:
        client.ask("PUT", f"/v1/tenants/{tenant.id}", {"id": tenant.id, "weight": tenant.weight})
    ids, began = [], time.monotonic()
    for i, job in enumerate(listed):
        time.sleep(max(began + job.arrival_s - time.monotonic(), 0.0))
        made = client.submit(
            [sys.executable, "-m", "fairlead.demo.train", str(job.steps), str(i)],
            tenant=job.tenant,
            workload=job.workload,
            steps=job.steps,
            weight=job.weight,
            directory=os.getcwd(),
            # One thread for each process: many of them share this machine's cores.
            environment={"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        )
        ids.append(made["id"])
    return ids


def _watch(client: "Client", count: int) -> "Contention":
    """Show how the jobs get on until all have ended; return what tenants had meanwhile."""
    from rich.live import Live

    from fairlead.cli.shared.output import messages
    from fairlead.client import OVER
    from fairlead.demo.contention import Contention
    from fairlead.demo.scenario import TENANTS, devices, normal_speeds

    weights = {tenant.id: tenant.weight for tenant in TENANTS}
    seen = Contention(weights, normal_speeds(), devices())
    with Live(console=messages, refresh_per_second=2, transient=True) as shown:
        while True:
            found = client.get("/v1/jobs", limit=1000)
            seen.note(time.monotonic(), found, client.get("/v1/shares"))
            over = sum(job["state"] in OVER for job in found)
            if messages.is_terminal:
                shown.update(_drawn(found))
            if over == count:
                return seen
            time.sleep(0.5)


def _drawn(found: list[dict[str, Any]]) -> Any:
    from rich.table import Table

    drawn = Table(title=f"{len(found)} jobs", title_justify="left")
    for head in ("job", "tenant", "workload", "state", "on", "progress", "loss", "moves"):
        drawn.add_column(head)
    for job in found:
        part = job["steps_done"] / (job["total_steps"] or 1)
        loss = job["metrics"].get("loss")
        drawn.add_row(
            job["id"],
            job["tenant"],
            job["workload"],
            job["state"],
            job["accelerator"] or "",
            "█" * round(20 * part) + "░" * (20 - round(20 * part)),
            "" if loss is None else f"{loss:.3f}",
            str(job["preemptions"]),
        )
    return drawn
