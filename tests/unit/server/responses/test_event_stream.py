"""Event streams: contents, and their end with the token."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from tests.unit.live.scripted_live import scripted_live

from fairlead.live.driver import Live
from fairlead.model.tenants.tenant import Tenant
from fairlead.server.access.tokens import Principal, Tokens
from fairlead.server.api.routes import service


def owner_of(
    live: Live, tokens: Tokens, text: str, clock: Callable[[], float] | None = None
) -> Callable[[], Awaitable[Principal]]:
    now = clock or live.clock.now

    async def authenticate() -> Principal:
        return tokens.authenticate(text, now())

    return authenticate


def test_a_silent_stream_ends_when_its_token_expires(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "_SILENCE_S", 0.02)

    async def scene() -> list[str]:
        async with scripted_live(tmp_path) as site, asyncio.timeout(90):
            tokens, at = Tokens({}, b"secret"), site.live.clock.now()
            text, _, _ = tokens.make("short", "viewer", at=at, lasts_s=0.3)
            clock = itertools.count(at, 0.1).__next__
            owner = owner_of(site.live, tokens, text, clock)
            lines = [line async for line in service.follow(site.live, owner)]
            assert not site.live.stream.subscribers
            return lines

    welcome, *silent = asyncio.run(scene())
    assert welcome == ": welcome\n\n"
    assert set(silent) == {": still here\n\n"}


def test_an_event_stream_ends_when_its_token_is_revoked(tmp_path: Path) -> None:
    async def scene() -> None:
        async with scripted_live(tmp_path) as site, asyncio.timeout(90):
            tokens = Tokens({}, b"secret")
            text, token, _ = tokens.make("follower", "viewer", at=site.live.clock.now())
            stream = service.follow(site.live, owner_of(site.live, tokens, text))
            await anext(stream)
            first = await site.submit()
            assert first in await anext(stream)
            tokens.revoke(token.id)
            await site.submit()
            assert [line async for line in stream] == []

    asyncio.run(scene())


def test_changes_of_nodes_and_tenants_reach_every_tenant_without_a_name(tmp_path: Path) -> None:
    async def scene() -> list[dict[str, object]]:
        async with scripted_live(tmp_path) as site, asyncio.timeout(90):
            live, notices = site.live, asyncio.Queue[dict[str, object]]()
            live.stream.subscribers.add(notices)
            node = live.scheduler.cluster.nodes[0].id
            await live.nodes.cordon(node, "operator")
            await live.tenants.set(Tenant("rival"), "operator")
            return [notices.get_nowait(), notices.get_nowait()]

    seen = [{**notice, "at": 0} for notice in asyncio.run(scene())]
    assert seen == [
        {"event": "nodes.changed", "at": 0},
        {"event": "tenants.changed", "at": 0},
    ]
