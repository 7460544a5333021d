"""What follows from removing a node: for what is counted, promised and for jobs that wait."""

import asyncio
from pathlib import Path

import pytest
from tests.unit.scripted_live import scripted_live

from fairlead.model.errors import InputError
from fairlead.model.job import Tenant
from fairlead.server.metrics import render
from fairlead.server.views import share_views


def test_devices_of_removed_nodes_count_no_more(tmp_path: Path) -> None:
    async def scene() -> None:
        async with scripted_live(tmp_path) as site:
            nodes = site.live.scheduler.nodes
            assert nodes.lasting_by_name == {"v100": 2, "k80": 2}
            for node in [one.id for one in nodes.cluster.nodes if "v100" in one.devices]:
                await site.live.nodes.remove(node, "operator")
            assert nodes.lasting_by_name == {"k80": 2}
            assert b'fairlead_devices{accelerator="v100"} 0.0' in render(site.live)
            await site.lease(await site.submit())
            assert [share.received for share in share_views(site.live)] == [0.5]

    asyncio.run(scene())


def test_only_what_is_there_can_be_promised_anew(tmp_path: Path) -> None:
    async def scene() -> None:
        async with scripted_live(tmp_path) as site:
            live = site.live
            await live.set_tenant(Tenant("a", guarantee={"v100": 2}), "operator")
            for node in [one.id for one in live.scheduler.cluster.nodes if "v100" in one.devices]:
                await live.nodes.remove(node, "operator")
            with pytest.raises(InputError, match="guaranteed in all, the cluster has 0"):
                await live.set_tenant(Tenant("b", guarantee={"v100": 1}), "operator")
            # An old promise that cannot be kept stands in nobody's way.
            await live.set_tenant(Tenant("b", guarantee={"k80": 2}), "operator")
            await live.set_tenant(Tenant("a", weight=2, guarantee={"v100": 1}), "operator")

    asyncio.run(scene())
