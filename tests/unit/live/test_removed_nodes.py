"""Effects of removing a node on device counts, guarantees and queued jobs."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.live.scripted_live import scripted_live

from fairlead.model import events as ev
from fairlead.model.cluster import Cluster, Node
from fairlead.model.errors import InputError, UsageError
from fairlead.model.speeds.table import SpeedKey, SpeedTable
from fairlead.model.tenants.tenant import Tenant
from fairlead.server.api.metrics import render
from fairlead.server.api.views import job_view, share_views
from fairlead.store import Audit


def test_devices_of_removed_nodes_are_not_counted(tmp_path: Path) -> None:
    async def scene() -> None:
        async with scripted_live(tmp_path) as site:
            nodes = site.live.scheduler.nodes
            assert nodes.permanent_by_name == {"v100": 2, "k80": 2}
            for node in [node.id for node in nodes.cluster.nodes if "v100" in node.devices]:
                await site.live.nodes.remove(node, "operator")
            assert nodes.permanent_by_name == {"k80": 2}
            assert b'fairlead_devices{accelerator="v100"} 0.0' in render(site.live)
            await site.lease(await site.submit())
            assert [share.received for share in share_views(site.live)] == [0.5]

    asyncio.run(scene())


def test_new_guarantees_must_fit_the_remaining_devices(tmp_path: Path) -> None:
    async def scene() -> None:
        async with scripted_live(tmp_path) as site:
            live = site.live
            await live.tenants.set(Tenant("a", guarantee={"v100": 2}), "operator")
            for node in [
                node.id for node in live.scheduler.cluster.nodes if "v100" in node.devices
            ]:
                await live.nodes.remove(node, "operator")
            with pytest.raises(InputError, match="guaranteed in all, the cluster has 0"):
                await live.tenants.set(Tenant("b", guarantee={"v100": 1}), "operator")
            # An old guarantee that cannot be honoured does not block other changes.
            await live.tenants.set(Tenant("b", guarantee={"k80": 2}), "operator")
            await live.tenants.set(Tenant("a", weight=2, guarantee={"v100": 1}), "operator")

    asyncio.run(scene())


def test_job_whose_devices_were_removed_stays_queued_under_any_policy(
    tmp_path: Path,
) -> None:
    async def scene() -> None:
        async with scripted_live(tmp_path) as site:
            job = await site.submit(accelerators=("v100",))
            await site.submit()
            fast = [
                node.id for node in site.live.scheduler.cluster.nodes if "v100" in node.devices
            ]
            for node in fast:
                await site.live.nodes.drain(node, "operator")
            removed = [await site.live.nodes.remove(node, "operator") for node in fast]
            # The job is stranded only when the last of them is removed.
            assert removed == [[]] * (len(fast) - 1) + [[job]]
            await site.live.jobs.change(
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


def test_speeds_under_which_a_stranded_job_could_never_run_are_rejected(
    tmp_path: Path,
) -> None:
    too_few = SpeedTable({SpeedKey("m", 1, "k80"): 1.0, SpeedKey("m", 1, "v100"): 0.0})

    async def scene() -> None:
        async with scripted_live(tmp_path) as site:
            await site.submit(accelerators=("v100",))
            for node in [node.id for node in site.live.scheduler.cluster.nodes]:
                if node.startswith("v100"):
                    await site.live.nodes.drain(node, "operator")
                    await site.live.nodes.remove(node, "operator")
        with pytest.raises(UsageError, match="could never run: "):
            async with scripted_live(tmp_path, speeds=too_few):
                pass

    asyncio.run(scene())
