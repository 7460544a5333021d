"""Removed tenants of a live scheduler."""

import asyncio
from pathlib import Path

import pytest
from tests.unit.live.scripted_live import scripted_live

from fairlead.live.tenants import TenantController
from fairlead.model.errors import ProtocolError
from fairlead.model.tenants.tenant import Tenant


def test_removed_tenant_loses_its_settings_and_stays_unlisted(tmp_path: Path) -> None:
    async def scene() -> None:
        async with scripted_live(tmp_path) as site:
            live = site.live
            await live.tenants.set(Tenant("a", guarantee={"v100": 2}), "operator")
            await live.tenants.set(Tenant("b", parent="a"), "operator")
            with pytest.raises(ProtocolError, match="parent of b"):
                await live.tenants.remove("a", "operator")
            await live.tenants.remove("b", "operator")
            await live.tenants.remove("a", "operator")
            assert live.tenants.listed == []
            stored = TenantController(live.scheduler, live.store, live.clock, live.inbox)
            assert stored.removed == {"a", "b"}
            await live.tenants.set(Tenant("c", guarantee={"v100": 2}), "operator")
            await live.tenants.set(Tenant("a"), "operator")
            assert [tenant.id for tenant in live.tenants.listed] == ["a", "c"]
            assert live.tenants.removed == {"b"}

    asyncio.run(scene())


def test_tenant_with_an_unended_job_cannot_be_removed(tmp_path: Path) -> None:
    async def scene() -> None:
        async with scripted_live(tmp_path) as site:
            job = await site.submit(tenant="a")
            with pytest.raises(ProtocolError, match="'a' has 1 job that has not ended"):
                await site.live.tenants.remove("a", "operator")
            await site.live.jobs.cancel(job, "operator")
            await site.live.tenants.remove("a", "operator")
            assert site.live.tenants.listed == []
            await site.submit(tenant="a")
            await site.live.tenants.list_again("a")
            assert [tenant.id for tenant in site.live.tenants.listed] == ["a"]

    asyncio.run(scene())
