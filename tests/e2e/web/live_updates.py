"""Changes of the cluster that open pages must show at once."""

import contextlib
from collections.abc import Callable, Mapping
from typing import NamedTuple

from playwright.sync_api import Locator, Page, expect
from tests.e2e.support.live_server import LiveServer
from tests.support.waiting import until

UPDATE_MS = 2_000
"""time within which a page shows an event; less than the time between two polls"""
ATTEMPTS = 5
"""attempts at an update in this time: the machine may be busy with others meanwhile"""


class Update(NamedTuple):
    """A change of the cluster, and the element in which a page shows it."""

    change: Callable[[LiveServer, int], str]
    """makes a change, each attempt another one; returns its name"""
    shown: Callable[[Page, str], Locator]
    """finds the element by the name of the change"""


def shows_soon(page: Page, server: LiveServer, update: Update) -> None:
    """Make changes until a page shows one in time."""
    for attempt in range(ATTEMPTS):
        name = update.change(server, attempt)
        with contextlib.suppress(AssertionError):
            expect(update.shown(page, name)).to_be_visible(timeout=UPDATE_MS)
            return
    raise AssertionError(f"no update within {UPDATE_MS} ms in {ATTEMPTS} attempts")


def _submit(server: LiveServer, name: str, workload: str = "small", after: str = "") -> str:
    jobs = [after] if after else []
    made = server.client.submit(["true"], tenant="red", name=name, workload=workload, after=jobs)
    return str(made["id"])


def _newcomer(server: LiveServer, attempt: int) -> str:
    _submit(server, name := f"newcomer-{attempt}")
    return name


def _add_search(server: LiveServer, attempt: int) -> str:
    """Submit the first trial of a search."""
    name = f"search-{attempt}"
    server.client.submit(["true"], tenant="red", name=f"trial of {name}", multijob=name)
    return name


def _run(server: LiveServer, attempt: int) -> str:
    """Submit a job; return its id once the server has recorded a lease of it."""
    job = _submit(server, f"runs-{attempt}")
    until(lambda: job in server.client.get("/v1/timeline")["jobs"]["id"])
    return job


def _training(server: LiveServer) -> str:
    (job,) = server.client.get("/v1/jobs", name="training")
    return str(job["id"])


def _add_workload(server: LiveServer, attempt: int) -> str:
    """Submit a job of another workload that cannot start yet."""
    workload = f"fresh-{attempt}"
    _submit(server, f"waits-{attempt}", workload, after=_training(server))
    return workload


def _prioritise(server: LiveServer, attempt: int) -> str:
    priority = 4321 + attempt
    server.client.ask("PATCH", f"/v1/jobs/{_training(server)}", {"priority": priority})
    return str(priority)


def _cordon(server: LiveServer, attempt: int) -> str:
    """Cordon one node after another."""
    nodes = [str(node["id"]) for node in server.client.get("/v1/nodes")]
    node = nodes[attempt % len(nodes)]
    server.client.post(f"/v1/nodes/{node}/cordon")
    return node


def _add_tenant(prefix: str) -> Callable[[LiveServer, int], str]:
    def add(server: LiveServer, attempt: int) -> str:
        tenant = f"{prefix}-{attempt}"
        server.client.ask("PUT", f"/v1/tenants/{tenant}", {"id": tenant, "weight": 3.0})
        return tenant

    return add


UPDATES: Mapping[str, Update] = {
    "jobs?search=newcomer": Update(
        _newcomer, lambda page, name: page.get_by_role("cell", name=name)
    ),
    "jobs/{job}": Update(_prioritise, lambda page, name: page.get_by_text(name, exact=True)),
    "cluster": Update(
        _cordon, lambda page, name: page.locator(".node", has_text=name).get_by_text("cordoned")
    ),
    "timeline?span=60": Update(
        _run, lambda page, name: page.get_by_role("link", name=name, exact=True)
    ),
    "tenants": Update(
        _add_tenant("late"), lambda page, name: page.get_by_role("heading", name=name)
    ),
    "searches": Update(
        _add_search, lambda page, name: page.get_by_role("link", name=name, exact=True)
    ),
    "speeds": Update(_add_workload, lambda page, name: page.get_by_role("rowheader", name=name)),
    "policy": Update(
        _add_tenant("later"), lambda page, name: page.get_by_label(f"weight of {name}")
    ),
    "audit?action=tenant": Update(
        _add_tenant("last"), lambda page, name: page.get_by_role("cell", name=name, exact=True)
    ),
}
"""address of a page → an update of it"""
