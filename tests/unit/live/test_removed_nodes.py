"""What follows from removing a node: for what is counted, promised and for jobs that wait."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.live.scripted_live import scripted_live

from fairlead.model import events as ev
from fairlead.model.cluster import Cluster, Node
from fairlead.model.errors import InputError, UsageError
from fairlead.model.job import Tenant
from fairlead.model.speeds.table import SpeedKey, SpeedTable
from fairlead.server.api.metrics import render
from fairlead.server.api.views import job_view, share_views
from fairlead.store import Audit


def test_devices_of_removed_nodes_count_no_more(tmp_path: Path) -> None:
    async def scene() -> None:
        async with scripted_live(tmp_path) as site:
            nodes = site.live.scheduler.nodes
            assert nodes.permanent_by_name == {"v100": 2, "k80": 2}
            for node in [one.id for one in nodes.cluster.nodes if "v100" in one.devices]:
                await site.live.nodes.remove(node, "operator")
            assert nodes.permanent_by_name == {"k80": 2}
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


def test_a_job_whose_devices_were_removed_waits_for_such_under_any_policy(
    tmp_path: Path,
) -> None:
    async def scene() -> None:
        async with scripted_live(tmp_path) as site:
            job = await site.submit(accelerators=("v100",))
            await site.submit()
            fast = [one.id for one in site.live.scheduler.cluster.nodes if "v100" in one.devices]
            for node in fast:
                await site.live.nodes.drain(node, "operator")
            removed = [await site.live.nodes.remove(node, "operator") for node in fast]
            # Only with the last of them its last chance goes.
            assert removed == [[]] * (len(fast) - 1) + [[job]]
            await site.live.change(
                lambda at: ev.JobChanged(
                    at, replace(site.live.scheduler.jobs.jobs[0], priority=5)
                ),
                Audit(0.0, "user", "change", job),
            )
        async with scripted_live(tmp_path, devices="k80=2", policy="hierarchical") as site:
            assert job_view(site.live, 0).state == "queued"
        renamed = Cluster(tuple(Node(f"new-{i}", ("v100",)) for i in range(2)))
        async with scripted_live(tmp_path, devices=renamed, policy="finish-time") as site:
            assert await site.lease(job) >= 0

    asyncio.run(scene())


def test_speeds_with_which_a_job_could_never_run_are_refused_also_of_removed_devices(
    tmp_path: Path,
) -> None:
    unable = SpeedTable({SpeedKey("m", 1, "k80"): 1.0})

    async def scene() -> None:
        async with scripted_live(tmp_path) as site:
            await site.submit(accelerators=("v100",))
            for node in [one.id for one in site.live.scheduler.cluster.nodes]:
                if node.startswith("v100"):
                    await site.live.nodes.drain(node, "operator")
                    await site.live.nodes.remove(node, "operator")
        with pytest.raises(UsageError, match=r"could not: .*can run on none"):
            async with scripted_live(tmp_path, speeds=unable):
                pass

    asyncio.run(scene())
