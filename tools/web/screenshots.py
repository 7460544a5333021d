"""Screenshots of the web pages, light and dark, from a live cluster with the demo's jobs.

``python -m tools.web.screenshots`` writes ``docs/assets/PAGE.light.png`` and ``PAGE.dark.png``.
"""

import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from playwright.sync_api import FloatRect, Page
from tests.e2e.web.browser import Visitor, open_browser
from tests.support.ports import free_port

from fairlead.cli.demo.demo import connect, start, submit
from fairlead.client import Client
from fairlead.demo.scenario import demo_jobs

ASSETS = Path(__file__).parents[2] / "docs/assets"
MAX_BYTES = 150_000
PAGES = (
    *("jobs", "job", "cluster", "timeline", "tenants"),
    *("speeds", "policy", "simulate", "searches", "submit", "tokens", "audit"),
)
_RUN_S, _DOWN_S = 15.0, 6.0
"""time for which the jobs run before and after a node is down, and of that outage"""
_NODE = "p100-0"
_PART: FloatRect = {"x": 0, "y": 0, "width": 1280, "height": 780}
_COMMAND = "python train.py --lr 0.1"
_SEARCH = "learning-rate"
_RATES = ("0.3", "0.1", "0.03", "0.01", "0.003", "0.001")
_TRIAL = """
import math, sys, time
from fairlead import job
rate, run = float(sys.argv[1]), job.attach()
for step in run.steps(range(300)):
    time.sleep(0.05)
    best = 0.97 - 0.06 * math.log10(rate / 0.02) ** 2
    run.report(accuracy=best - 0.6 * math.exp(-step * (0.01 + rate / 8)))
"""


def main() -> int:
    """Write all pictures; return 1 if one is too large."""
    with tempfile.TemporaryDirectory() as folder:
        data, port = Path(folder), free_port()
        server = start(data, port)
        try:
            client = connect(data, port, server)
            with _ended_jobs(client):
                _search(client, data)
                submit(client, demo_jobs(24, seconds=60.0))
                _run(client)
                with open_browser() as browser:
                    token = (data / "admin.token").read_text(encoding="ascii")
                    visit = partial(Visitor, browser, f"http://127.0.0.1:{port}")
                    sizes = _photograph(visit, client, token)
        finally:
            server.terminate()
            server.wait(20)
    large = {name: size for name, size in sizes.items() if size > MAX_BYTES}
    sys.stdout.write(f"{len(sizes)} pictures in {ASSETS}; too large: {large or 'none'}\n")
    return 1 if large else 0


@contextmanager
def _ended_jobs(client: Client) -> Iterator[None]:
    """Cancel all jobs at the end, also after an error: they would outlive the server."""
    try:
        yield
    finally:
        for job in client.get("/v1/jobs", unended=True):
            client.wait(client.post(f"/v1/jobs/{job['id']}/cancel")["id"])


def _search(client: Client, folder: Path) -> None:
    """Run the trials of a search; return when all have ended."""
    script = folder / "trial.py"
    script.write_text(_TRIAL, encoding="utf-8")
    trials = [
        client.submit(
            [sys.executable, str(script), rate],
            name=f"rate {rate}",
            workload="VAE",
            steps=300,
            multijob=_SEARCH,
            hyperparameters={"lr": rate},
        )
        for rate in _RATES
    ]
    for trial in trials:
        client.wait(trial["id"])


def _run(client: Client) -> None:
    """Wait while the jobs run, for a time without one node."""
    time.sleep(_RUN_S)
    client.post(f"/v1/nodes/{_NODE}/drain")
    time.sleep(_DOWN_S)
    client.post(f"/v1/nodes/{_NODE}/return")
    time.sleep(_RUN_S)


def _photograph(visit: Callable[..., Visitor], client: Client, token: str) -> dict[str, int]:
    """Write a picture of each page in each colour scheme; return their sizes."""
    sizes = {}
    running = [job["id"] for job in client.get("/v1/jobs", state="running")]
    addresses = {
        "job": f"jobs/{running[0]}",
        "searches": f"searches?tenant=default&name={_SEARCH}",
    }
    for scheme in ("light", "dark"):
        visitor = visit(scheme=scheme).log_in(token)
        for name in PAGES:
            page = visitor.open(addresses.get(name, name))
            _prepare(page, name)
            path = ASSETS / f"{name}.{scheme}.png"
            page.screenshot(path=path, clip=_PART)
            sizes[path.name] = path.stat().st_size
        visitor.close()
    return sizes


def _prepare(page: Page, name: str) -> None:
    """Do on a page what its picture shows."""
    match name:
        case "submit":
            page.get_by_label("Command", exact=True).first.fill(_COMMAND)
        case "timeline":
            page.get_by_label("Span").select_option("1 minute")
            page.get_by_text("node down", exact=True).wait_for()
        case "policy":
            page.get_by_label("Devices: v100").fill("8")
            page.get_by_role("button", name="Show consequences").click()
            page.get_by_role("region", name="Consequences per tenant").wait_for()
        case "simulate":
            comparison = page.get_by_role("region", name="Comparison")
            if comparison.count() == 0:
                page.get_by_label("Policies").fill("max-min fifo srtf")
                page.get_by_role("button", name="Simulate").click()
            comparison.wait_for()
        case "searches":
            heading = page.get_by_role("heading", name="Learning curves")
            heading.evaluate("it => it.scrollIntoView()")
        case "tenants":
            page.locator(".curve canvas").first.wait_for()
        case "job":
            page.locator(".explained").first.wait_for()
            page.locator(".curve canvas").first.wait_for()


if __name__ == "__main__":
    sys.exit(main())
