"""Explanations and changes to try: names that are hidden, policies without shares."""

import asyncio
from pathlib import Path

import pytest
from tests.unit.live.scripted_live import scripted_live

from fairlead.live.driver import Live
from fairlead.model.errors import ProtocolError
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

            monkeypatch.setattr("fairlead.server.api.routes.insights.advise", fail)
            with pytest.raises(ProtocolError, match="there is no advice now: the policy failed"):
                await advice(server, ADMIN)

    asyncio.run(scene())


def test_a_job_that_ends_before_its_turn_is_not_explained(tmp_path: Path) -> None:
    async def scene() -> None:
        async with scripted_live(tmp_path) as site:
            server = context(site.live)
            job = await site.submit(tenant="red")
            async with server.explaining:
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
            async with server.explaining:
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
            async with server.explaining:
                waiting = asyncio.ensure_future(audit_policy(server, ADMIN))
                await asyncio.sleep(0)
                await site.submit()
            with pytest.raises(ProtocolError, match="2 jobs are too many for the server"):
                await waiting

    asyncio.run(scene())


def context(live: Live) -> ServerContext:
    limiters = RateLimiters(RateLimits())
    return ServerContext(live, Tokens({}, b"secret"), limiters, ServerInfo())
