"""Every engine keeps what the engine suite asks of it, and the suite bites."""

import asyncio
import os
import shutil
import signal
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fairlead.engines.base import Ended, Order, Report
from fairlead.engines.local.engine import LocalEngine
from fairlead.engines.ray.engine import RayEngine
from fairlead.engines.slurm.engine import SlurmEngine
from fairlead.model.cluster import Cluster, Node
from fairlead.private_clusters.ray import RayCluster
from fairlead.private_clusters.slurm import SlurmCluster, missing
from fairlead.testing.contract import BrokenPromiseError
from fairlead.testing.engines import ends as engines_ends
from fairlead.testing.engines import launches as engines_starts
from fairlead.testing.engines import restarts as engines_lasts
from fairlead.testing.engines.bench import Rig
from fairlead.testing.engines.suite import CHECKS

LOCAL = Cluster(
    (
        Node("big", ("v100", "v100"), "r1"),
        Node("mixed", ("p100", "k80"), "r1"),
        Node("small", ("k80", "k80"), "r2"),
    )
)


def by_name(check: Any) -> str:
    return str(check.__name__.removeprefix("check_"))


@pytest.mark.parametrize("check", CHECKS, ids=by_name)
def test_local_engine_conforms(check: Any, tmp_path: Path) -> None:
    check(Rig(make=lambda: LocalEngine(tmp_path / "data", LOCAL), root=tmp_path, cluster=LOCAL))


# -- Slurm --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    if missing():
        pytest.skip(missing())
    cluster = SlurmCluster(tmp_path_factory.mktemp("slurm"))
    try:
        yield cluster.start()
    finally:
        cluster.stop()


def slurm_rig(slurm: SlurmCluster, root: Path) -> Rig:
    async def lose(node: str) -> None:
        await asyncio.to_thread(slurm.kill_node, node)

    async def give_back(node: str) -> None:
        slurm.start_node(node)

    return Rig(
        make=lambda: SlurmEngine(root / "data"),
        root=root,
        cluster=slurm.cluster,
        leftovers=lambda: slurm.run("squeue", "--noheader", "--format=%j %T").splitlines(),
        lose=lose,
        give_back=give_back,
    )


@pytest.mark.slow
@pytest.mark.parametrize("check", CHECKS, ids=by_name)
def test_slurm_engine_conforms(
    check: Any, slurm: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_CONF", slurm.environment["SLURM_CONF"])
    slurm.wait_idle()  # to this engine, what the last check's has just stopped is others'
    check(slurm_rig(slurm, tmp_path))


# -- Ray ----------------------------------------------------------------------------------------


def ray_rig(ray: RayCluster, root: Path) -> Rig:
    async def lose(node: str) -> None:
        await asyncio.to_thread(ray.kill_node, node)

    async def give_back(node: str) -> None:
        await asyncio.to_thread(ray.start_node, node)

    return Rig(
        make=lambda: RayEngine(root / "data", **ray.options),
        root=root,
        cluster=ray.cluster,
        leftovers=ray.groups,
        lose=lose,
        give_back=give_back,
    )


@pytest.mark.slow
@pytest.mark.parametrize("check", CHECKS, ids=by_name)
def test_ray_engine_conforms(check: Any, ray: RayCluster, tmp_path: Path) -> None:
    check(ray_rig(ray, tmp_path))


# -- the suite itself ---------------------------------------------------------------------------


class ForgetsRacks(LocalEngine):
    async def inventory(self) -> Cluster:
        found = await super().inventory()
        return Cluster(tuple(replace(node, rack="") for node in found.nodes))


class CrowdsOneDevice(LocalEngine):
    async def launch(self, order: Order) -> None:
        await super().launch(replace(order, devices=(order.devices[0],) * len(order.devices)))


class RunsAgain(LocalEngine):
    async def launch(self, order: Order) -> None:
        shutil.rmtree(self._root / str(order.lease), ignore_errors=True)
        await super().launch(order)


class KillsAtOnce(LocalEngine):
    async def stop(self, lease: int) -> None:
        if lease in self._pidfds:
            signal.pidfd_send_signal(self._pidfds[lease], signal.SIGKILL)


class SaysNothing(LocalEngine):
    def reports(self) -> AsyncIterator[Report]:
        return self._only_starts()

    async def _only_starts(self) -> AsyncIterator[Report]:
        async for report in super().reports():
            if not isinstance(report, Ended):
                yield report


class IgnoresTheFence(LocalEngine):
    async def launch(self, order: Order) -> None:
        await super().launch(replace(order, checkpoint_dir=order.checkpoint_dir + "-other"))


class LeavesFilesOpen(LocalEngine):
    async def launch(self, order: Order) -> None:
        await super().launch(order)
        OPEN.append(os.open("/dev/null", os.O_RDONLY))


OPEN: list[int] = []


@pytest.mark.parametrize(
    ("kind", "check", "said"),
    [
        (
            ForgetsRacks,
            engines_starts.check_inventory_says_types_counts_nodes_and_racks,
            "inventory",
        ),
        (CrowdsOneDevice, engines_starts.check_gang_over_nodes_meets, "use"),
        (RunsAgain, engines_starts.check_calls_can_be_repeated, "in vain|ran|starts|differ"),
        (KillsAtOnce, engines_ends.check_stop_lets_members_save_and_kills_the_deaf, "ended lost"),
        (SaysNothing, engines_ends.check_ends_are_told_as_they_were, "in vain for the end"),
        (
            IgnoresTheFence,
            engines_ends.check_launch_behind_the_fence_starts_nothing,
            "in vain|ended",
        ),
        (
            LeavesFilesOpen,
            engines_lasts.check_fifty_launches_and_stops_leave_nothing_behind,
            "open",
        ),
    ],
)
def test_suite_finds_what_an_engine_must_not_do(
    kind: type[LocalEngine], check: Any, said: str, tmp_path: Path
) -> None:
    rig = Rig(
        make=lambda: kind(tmp_path / "data", LOCAL), root=tmp_path, cluster=LOCAL, patience_s=4.0
    )
    settings = {"rounds": 8} if kind is LeavesFilesOpen else {}
    with pytest.raises(BrokenPromiseError, match=said):
        check(rig, **settings)
    while OPEN:
        os.close(OPEN.pop())
