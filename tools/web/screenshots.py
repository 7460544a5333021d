"""Screenshots of the web pages, light and dark, from a live cluster with the demo's jobs.

``python -m tools.web.screenshots`` writes ``docs/assets/PAGE.light.png`` and ``PAGE.dark.png``.
"""

import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from playwright.sync_api import FloatRect
from tests.e2e.web.browser import Visitor, open_browser

from fairlead.cli.demo.demo import connect, start, submit
from fairlead.client import Client
from fairlead.demo.scenario import demo_jobs
from fairlead.engines.keeper.environment import free_port

ASSETS = Path(__file__).parents[2] / "docs/assets"
MAX_BYTES = 150_000
PAGES = ("jobs", "job", "cluster", "tenants", "speeds", "submit")
_RUN_S = 30.0
"""time for which the jobs run before the first picture"""
_PART: FloatRect = {"x": 0, "y": 0, "width": 1280, "height": 780}
_COMMAND = "python train.py --lr 0.1"


def main() -> int:
    """Write all pictures; return 1 if one is too large."""
    with tempfile.TemporaryDirectory() as folder:
        data, port = Path(folder), free_port()
        server = start(data, port)
        try:
            client = connect(data, port, server)
            submit(client, demo_jobs(24, seconds=60.0))
            time.sleep(_RUN_S)
            with open_browser() as browser:
                token = (data / "admin.token").read_text(encoding="ascii")
                visit = partial(Visitor, browser, f"http://127.0.0.1:{port}")
                sizes = _photograph(visit, client, token)
            for job in client.get("/v1/jobs", unended=True):
                client.post(f"/v1/jobs/{job['id']}/cancel")
        finally:
            server.terminate()
            server.wait(20)
    large = {name: size for name, size in sizes.items() if size > MAX_BYTES}
    sys.stdout.write(f"{len(sizes)} pictures in {ASSETS}; too large: {large or 'none'}\n")
    return 1 if large else 0


def _photograph(visit: Callable[..., Visitor], client: Client, token: str) -> dict[str, int]:
    """Write a picture of each page in each colour scheme; return their sizes."""
    sizes = {}
    running = [job["id"] for job in client.get("/v1/jobs", state="running")]
    addresses = {"job": f"jobs/{running[0]}"}
    for scheme in ("light", "dark"):
        visitor = visit(scheme=scheme).log_in(token)
        for name in PAGES:
            page = visitor.open(addresses.get(name, name))
            if name == "submit":
                page.get_by_label("Command", exact=True).first.fill(_COMMAND)
            if name == "job":
                page.locator(".explained").first.wait_for()
                page.locator(".curve canvas").first.wait_for()
            path = ASSETS / f"{name}.{scheme}.png"
            page.screenshot(path=path, clip=_PART)
            sizes[path.name] = path.stat().st_size
        visitor.close()
    return sizes


if __name__ == "__main__":
    sys.exit(main())
