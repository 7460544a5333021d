"""``fairlead demo``."""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from fairlead.client import Client
    from fairlead.demo.scene import DemoJob


def demo(
    jobs: Annotated[int, typer.Option(help="How many jobs to run.", min=3)] = 21,
    port: Annotated[int, typer.Option(help="Port of the server.")] = 8652,
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave the server running at the end.")
    ] = False,
) -> None:
    """Run a small cluster for about two minutes: real training processes on emulated devices.

    Three tenants submit jobs to a server with eight devices of three kinds; at the end their
    shares stand against their entitlement, and completion times against the simulator's and
    against a scheduler that does not know what accelerators are.

    Example:  fairlead demo --keep
    """
    from fairlead.cli.output import messages
    from fairlead.demo.scene import demo_jobs

    data = Path(tempfile.mkdtemp(prefix="fairlead-demo-"))
    server = start(data, port)
    listed = demo_jobs(jobs)
    try:
        client = connect(data, port, server)
        messages.print(f"server on http://127.0.0.1:{port}, data in {data}")
        ids = submit(client, listed)
        _watch(client, len(listed))
        _conclude(client, listed, ids)
        if keep:
            messages.print(f"The server goes on: FAIRLEAD_DATA={data} fairlead jobs")
        else:
            messages.print(
                "Next: `fairlead serve --emulate v100=2,k80=4` and"
                " `fairlead submit --workload LSTM --steps 2000 --"
                " python -m fairlead.demo.train 2000`"
            )
    finally:
        if not keep:
            server.terminate()
            server.wait(20)


def start(data: Path, port: int) -> "subprocess.Popen[bytes]":
    """Start the demo's server in a process of its own."""
    from fairlead.demo.scene import DEVICES, ROUND_S

    command = [sys.executable, "-m", "fairlead", "serve", "--data", str(data)]
    command += ["--port", str(port), "--emulate", DEVICES, "--round", str(ROUND_S)]
    with (data / "server.log").open("ab") as log:
        return subprocess.Popen(command, stdout=log, stderr=log)


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
    from fairlead.demo.scene import TENANTS

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


def _watch(client: "Client", count: int) -> None:
    """Show how the jobs get on until all have ended."""
    from rich.live import Live

    from fairlead.cli.output import messages

    with Live(console=messages, refresh_per_second=2, transient=True) as shown:
        while True:
            found = client.get("/v1/jobs", limit=1000)
            over = sum(job["state"] in ("finished", "failed", "cancelled") for job in found)
            if messages.is_terminal:
                shown.update(_drawn(found))
            if over == count:
                return
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


def _conclude(client: "Client", listed: "list[DemoJob]", ids: list[str]) -> None:
    from fairlead.cli.output import messages, table
    from fairlead.demo.scene import ROUND_S, predicted
    from fairlead.server.serve import plan_lead_s

    found = [client.job(job_id) for job_id in ids]
    first = min(job["submitted_at"] for job in found)
    spans = [job["ended_at"] - job["submitted_at"] for job in found]
    last = max(job["ended_at"] for job in found) - first
    rows = [["live, max-min", f"{sum(spans) / len(spans):.1f} s", f"{last:.1f} s"]]
    about = client.get("/v1/about")
    lease_s = (about["start_s"] or 0.0) + (about["end_s"] or 0.0)
    arrivals = [job["submitted_at"] - first for job in found]
    for policy in ("max-min", "max-min:agnostic"):
        ends = predicted(
            listed, arrivals, policy, lease_s=lease_s, plan_lead_s=plan_lead_s(ROUND_S)
        )
        mean = sum(ends - arrivals) / len(ends)
        rows.append([f"simulated, {policy}", f"{mean:.1f} s", f"{max(ends):.1f} s"])
    table("completion", ["", "mean", "last"], rows)
    messages.print(
        f"A lease cost {lease_s:.2f} s beside its steps; the simulator reckons with it."
    )
    wrong = [job["id"] for job in found if job["state"] != "finished"]
    exact = sum(job["steps_done"] == job["total_steps"] for job in found)
    moved = sum(len(job["accelerators_used"]) > 1 for job in found)
    table(
        "jobs",
        ["", "count"],
        [
            ["finished with exactly their steps", f"{exact} of {len(found)}"],
            ["preempted and continued, times", str(sum(job["preemptions"] for job in found))],
            ["ran on several accelerators", str(moved)],
        ],
    )
    shares = client.get("/v1/shares")
    whole = sum(one["device_hours"] for one in shares) or 1.0
    weights = sum(one["weight"] for one in shares)
    table(
        "tenants",
        ["tenant", "entitled", "received"],
        [
            [
                one["tenant"],
                f"{one['weight'] / weights:.0%}",
                f"{one['device_hours'] / whole:.0%}",
            ]
            for one in shares
        ],
    )
    if wrong:
        raise typer.Exit(1)
