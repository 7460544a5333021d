"""Explanations and changes to try: names that are hidden, policies without shares."""

import asyncio
from pathlib import Path

import pytest
from tests.support.waiting import eventually
from tests.unit.live.scripted_live import scripted_live

from fairlead.files import parse_cluster
from fairlead.live.driver import Live
from fairlead.model.errors import ProtocolError
from fairlead.model.tenants.tenant import Tenant
from fairlead.server.access.rate_limits import RateLimiters, RateLimits
from fairlead.server.access.tokens import Principal, Tokens
from fairlead.server.api.policy_room.messages import WhatIf
from fairlead.server.api.policy_room.routes import audit_policy, what_if
from fairlead.server.api.routes.insights import advice, explain_job
from fairlead.server.api.routes.tenants import explain
from fairlead.server.context import ServerContext, ServerInfo

ADMIN = Principal("ann", "admin")


def test_a_tenant_learns_no_names_of_others(tmp_path: Path) -> None:
    async def scene() -> None:
        async with scripted_live(tmp_path, devices="v100=1") as site:
            server = context(site.live)
            await site.lease(await site.submit(tenant="red"))
            for tenant in ("red", "secret", "hidden"):
                await site.submit(tenant=tenant)
            whole = " ".join((await explain("red", server, ADMIN)).text)
            assert "tenants with jobs: secret, hidden." in whole
            own = " ".join((await explain("red", server, Principal("eve", "tenant", "red"))).text)
            assert own == whole.replace("secret, hidden", "2 others")
            other = Principal("bob", "tenant", "red", sees=("hidden",))
            some = " ".join((await explain("red", server, other)).text)
            assert some == whole.replace("secret, hidden", "hidden and 1 other")

    asyncio.run(scene())


def test_policies_that_fail_or_have_no_shares_are_no_error_of_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene() -> None:
        async with scripted_live(tmp_path) as site:
            server = context(site.live)
            await site.submit()
            with pytest.raises(ProtocolError, match="gandiva:x=1 computes no shares"):
                await what_if(WhatIf(policy="gandiva:x=1"), server, ADMIN)
            assert [entry["job"] for entry in await advice(server, ADMIN)] == ["j1"]

            def fail(*_: object) -> None:
                raise ZeroDivisionError

            await site.submit()  # otherwise the last answer still holds
            monkeypatch.setattr("fairlead.server.api.routes.insights.advise", fail)
            with pytest.raises(ProtocolError, match="there is no advice now: the policy failed"):
                await advice(server, ADMIN)

    asyncio.run(scene())


@pytest.mark.parametrize("policy", ["srtf", "tiresias", "gandiva"])
def test_a_job_is_explained_without_prices_where_the_policy_computes_no_shares(
    tmp_path: Path, policy: str
) -> None:
    async def scene() -> None:
        async with scripted_live(tmp_path, devices="v100=1", policy=policy) as site:
            server = context(site.live)
            running = await site.submit(tenant="red", steps=10)
            await site.lease(running)
            queued = await site.submit(tenant="blue", steps=100, gang=1)
            running_text = (await explain_job(running, server, ADMIN))["text"]
            assert running_text[0] == "Job j1 is running on 1 v100."
            answer = await explain_job(queued, server, ADMIN)
            assert (answer["policy"], answer["who"], answer["kind"]) == (policy, queued, "job")
            assert answer["text"] == [
                "Job j2 is queued and holds no devices.",
                "It needs 1 v100 (1 of 1 held).",
                "These devices are held by j1 of tenant red.",
                f"{policy} computes no shares, so it has no prices to explain;"
                " `fairlead job j2` shows the job's believed speeds.",
            ]
            blue = Principal("bob", "tenant", "blue")
            hidden = (await explain_job(queued, server, blue))["text"]
            assert hidden[2] == "These devices are held by a job of another tenant."

    asyncio.run(scene())


def test_a_job_without_prices_learns_why_it_waits(tmp_path: Path) -> None:
    async def scene() -> None:
        async with scripted_live(tmp_path, devices="v100=2", policy="srtf") as site:
            server = context(site.live)
            await site.live.tenants.set(Tenant("red", limit={"v100": 1.0}), "ann")
            await site.lease(await site.submit(tenant="red", steps=10))
            waiting = await site.submit(tenant="red", steps=100)
            text = (await explain_job(waiting, server, ADMIN))["text"]
            assert text[1] == "It needs 1 v100 (1 of 2 held)."
            assert text[3] == "It waits: tenant red has reached its limit of v100."

    asyncio.run(scene())


def test_a_job_without_prices_learns_that_its_gang_fits_nowhere(tmp_path: Path) -> None:
    async def scene() -> None:
        cluster = parse_cluster("v100=2")
        async with scripted_live(tmp_path, devices=cluster, policy="srtf") as site:
            job = await site.submit(gang=2, steps=10)
            await site.live.nodes.drain(cluster.nodes[0].id, "ann")
            await eventually(lambda: not site.engine.open, "the node is not drained")
            text = (await explain_job(job, context(site.live), ADMIN))["text"]
            assert text[1] == "No accelerator that it may use has 2 devices that are up."

    asyncio.run(scene())


def test_a_job_that_ends_before_its_turn_is_not_explained(tmp_path: Path) -> None:
    async def scene() -> None:
        async with scripted_live(tmp_path) as site:
            server = context(site.live)
            job = await site.submit(tenant="red")
            async with server.answers.turn:
                waiting = asyncio.ensure_future(explain_job(job, server, ADMIN))
                await asyncio.sleep(0)
                await site.live.jobs.cancel(job, "ann")
            with pytest.raises(ProtocolError, match="it ended or was suspended a moment ago"):
                await waiting

    asyncio.run(scene())


def test_explanation_of_a_job_that_is_not_scheduled_names_its_state(tmp_path: Path) -> None:
    async def scene() -> None:
        async with scripted_live(tmp_path) as site:
            server = context(site.live)
            suspended, cancelled = await site.submit(), await site.submit()
            await site.live.jobs.suspend(suspended, "ann")
            await site.live.jobs.cancel(cancelled, "ann")
            with pytest.raises(ProtocolError, match="it is suspended: `fairlead resume`"):
                await explain_job(suspended, server, ADMIN)
            with pytest.raises(ProtocolError, match="not being scheduled: it was cancelled"):
                await explain_job(cancelled, server, ADMIN)

    asyncio.run(scene())


def test_audit_of_too_many_jobs_is_refused_before_its_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlead.server.api.policy_room.routes._MAX_AUDITED", 1)

    async def scene() -> None:
        async with scripted_live(tmp_path) as site:
            server = context(site.live)
            await site.submit()
            await site.submit()
            async with server.answers.turn:
                with pytest.raises(ProtocolError, match="2 jobs are too many for the server"):
                    await audit_policy(server, ADMIN)

    asyncio.run(scene())


def test_audit_of_jobs_that_become_too_many_before_its_turn_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlead.server.api.policy_room.routes._MAX_AUDITED", 1)

    async def scene() -> None:
        async with scripted_live(tmp_path) as site:
            server = context(site.live)
            await site.submit()
            async with server.answers.turn:
                waiting = asyncio.ensure_future(audit_policy(server, ADMIN))
                await asyncio.sleep(0)
                await site.submit()
            with pytest.raises(ProtocolError, match="2 jobs are too many for the server"):
                await waiting

    asyncio.run(scene())


def context(live: Live) -> ServerContext:
    limiters = RateLimiters(RateLimits())
    return ServerContext(live, Tokens({}, b"secret"), limiters, ServerInfo())
