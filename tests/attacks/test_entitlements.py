"""Tenants inflate their numbers over HTTP: others keep their shares, guarantees and caps hold."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
from tests.e2e.support.live_server import LiveServer, json_output
from tests.support.waiting import until

from fairlead.client import Client, ServerError
from fairlead.core import Scheduler
from fairlead.core.event_log import decode_event
from fairlead.model import events as ev
from fairlead.model.cluster import Cluster
from fairlead.model.tenants.tenant import Tenant
from fairlead.server.api.schemas import TenantView
from fairlead.server.config.scheduling import load_scheduling_config
from fairlead.store import Store

_DEVICES = {"v100": 2, "k80": 2}
_ROUNDS = 12


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    listed = ",".join(f"{name}={count}" for name, count in _DEVICES.items())
    made = LiveServer(tmp_path_factory.mktemp("entitled"), devices=listed, round_s=0.5)
    made.extra = ("--engine", "rehearsal", "--trust-jobs")
    made.start()
    yield made
    made.clean_up()


@pytest.fixture(scope="module")
def tenants(server: LiveServer) -> Iterator[dict[str, Client]]:
    clients = {}
    for tenant in ("loud", "quiet"):
        body = {"name": tenant, "role": "tenant", "tenant": tenant}
        token = server.client.post("/v1/tokens", body)["token"]
        clients[tenant] = Client(f"http://127.0.0.1:{server.port}", token)
    yield clients
    for client in clients.values():
        client.close()


def submit(client: Client, **values: Any) -> str:
    job: str = client.submit(
        ["sleep", "600"], workload="big", steps=10**9, preempt="yes", **values
    )["id"]
    return job


def rounds_in_log(server: LiveServer) -> Iterator[Scheduler[Any]]:
    """Replay the event log; yield the scheduler after every plan that took effect."""
    store = Store(f"sqlite:///{server.data / 'fairlead.db'}")
    (text,) = store.documents("rules").values()
    config = load_scheduling_config(text)
    scheduler: Scheduler[Any] = Scheduler(
        Cluster.of(_DEVICES, per_node=2),
        config.beliefs,
        config.mechanism,
        plan_lead_s=config.plan_lead_s,
        weight_scope=config.weight_scope,
    )
    for record in store.load_events(0):
        event = decode_event(record.body, type(scheduler.memory))
        before = scheduler.round_end_at
        scheduler.handle(event)
        if isinstance(event, ev.RoundEnd) and scheduler.round_end_at != before:
            yield scheduler
    store.close()


def held(scheduler: Scheduler[Any], tenant: str, accelerator: str) -> int:
    """Return the devices that a tenant holds or that its placed jobs wait for."""
    column = scheduler.cluster.accelerators.index(accelerator)
    leases, jobs = scheduler.leases, scheduler.jobs
    here = scheduler.cluster.accelerator_of == column
    slots = leases.holder[:, here]
    staying = slots[(slots >= 0) & ~leases.leaving[slots]]
    owners = [jobs.jobs[job].tenant for job in leases.job[staying].tolist()]
    waiting = [p for p in scheduler.waiting if here[list(p.devices)].all()]
    placed = [jobs.jobs[p.job].tenant for p in waiting for _ in p.devices]
    return owners.count(tenant) + placed.count(tenant)


def test_inflated_numbers_neither_starve_others_nor_touch_guarantees(
    server: LiveServer, tenants: dict[str, Client]
) -> None:
    made = server.cli("tenants", "set", "quiet", "--guarantee", "v100=1")
    assert made.returncode == 0, made.stderr
    for _ in range(4):
        submit(tenants["loud"], priority=1000, weight=1e6)
    quiet = [submit(tenants["quiet"]) for _ in range(4)]
    sampled: list[tuple[int, int]] = []

    def enough() -> bool:
        sampled[:] = [
            (held(at, "quiet", "v100"), held(at, "quiet", "k80"))
            for at in rounds_in_log(server)
            if len(at.jobs) >= 8
        ]
        # Leases that have just started are not preempted, so the first rounds may come too early.
        while sampled and not sampled[0][0]:
            del sampled[0]
        return len(sampled) >= _ROUNDS

    until(enough)
    on_v100, on_k80 = np.array(sampled).T
    assert (on_v100 >= 1).all(), sampled
    speed = 100 * on_v100 + 25 * on_k80  # of 250 steps/s
    assert speed.mean() >= 100, sampled
    assert all(tenants["quiet"].job(job)["state"] in ("running", "queued") for job in quiet)


def test_submissions_above_a_cap_of_the_tenant_are_refused(server: LiveServer) -> None:
    caps = ("--max-priority", 0, "--max-weight", 2, "--max-jobs", 2)
    made = server.cli("tenants", "set", "small", *caps)
    assert made.returncode == 0, made.stderr
    listed = json_output(server, "tenants")[-1]
    assert (listed["id"], listed["max_priority"], listed["max_jobs"]) == ("small", 0, 2)
    body = {"name": "small", "role": "tenant", "tenant": "small"}
    token = server.client.post("/v1/tokens", body)["token"]
    small = Client(f"http://127.0.0.1:{server.port}", token)
    for values, error in (
        ({"priority": 1}, r"priority: 1 exceeds the cap of tenant 'small': expected at most 0"),
        ({"weight": 2.5}, r"weight: 2.5 exceeds the cap of tenant 'small': expected at most 2"),
    ):
        with pytest.raises(ServerError, match=error):
            submit(small, **values)
    first = submit(small, priority=-5, weight=2.0)
    with pytest.raises(ServerError, match="priority: 7 exceeds the cap of tenant 'small'"):
        small.ask("PATCH", f"/v1/jobs/{first}", {"priority": 7})
    submit(small)
    with pytest.raises(ServerError, match="tenant: 'small' has 2 jobs that have not"):
        submit(small)
    granted = submit(server.client, tenant="small", priority=9, weight=50.0)
    assert server.client.job(granted)["priority"] == 9
    for job in small.get("/v1/jobs", tenant="small"):
        small.post(f"/v1/jobs/{job['id']}/cancel")
    until(lambda: not small.get("/v1/jobs", tenant="small", state="running"))
    assert submit(small)
    made = server.cli("tenants", "set", "small", "--max-jobs", "none", "--max-priority", "x")
    assert "--max-priority: 'x': expected a number, or none" in made.stderr
    small.close()


def explains(client: Client, job: str, cause: str) -> bool:
    return cause in " ".join(client.get(f"/v1/jobs/{job}/explain")["text"])


def test_a_starved_job_names_its_cause_without_names_of_other_tenants(
    server: LiveServer, tenants: dict[str, Client]
) -> None:
    made = server.cli("tenants", "set", "loud", "--priority", 5)
    assert made.returncode == 0, made.stderr
    job = submit(tenants["quiet"], accelerators=["k80"])
    until(lambda: tenants["quiet"].job(job)["state"] in ("queued", "running"))
    for client, cause in (
        (tenants["quiet"], "tenants of a higher priority precede it (0): another tenant (5)"),
        (server.client, "tenants of a higher priority precede it (0): loud (5)"),
    ):
        until(partial(explains, client, job, cause))
    assert server.cli("tenants", "set", "loud", "--priority", 0).returncode == 0


def test_a_quota_that_an_earlier_version_stored_is_listed_as_none() -> None:
    stored = Tenant("t", weight=1e-9, guarantee={"v100": 5e-324}, limit={"v100": 1e-7, "k80": 2.0})
    view = TenantView.of(stored)
    assert (view.guarantee, view.limit) == ({"v100": 0.0}, {"v100": 0.0, "k80": 2.0})
    assert TenantView.model_validate(view.model_dump()).to_tenant().limit == view.limit
