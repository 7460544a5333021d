"""Every engine passes the conformance suite, and the suite detects violations."""

import asyncio
import os
import shutil
import signal
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fairlead.engines.base import Ended, LaunchOrder, Report
from fairlead.engines.local.engine import LocalEngine
from fairlead.engines.ray.engine import RayEngine
from fairlead.engines.slurm.engine import SlurmEngine
from fairlead.model.cluster import Cluster, Node
from fairlead.private_clusters.ray import RayCluster
from fairlead.private_clusters.slurm import SlurmCluster
from fairlead.testing.contract import ContractViolationError
from fairlead.testing.engines import ends, launches, restarts
from fairlead.testing.engines.harness import EngineFixture
from fairlead.testing.engines.suite import CHECKS

LOCAL = Cluster(
    (
        Node("big", ("v100", "v100"), "r1"),
        Node("mixed", ("p100", "k80"), "r1"),
        Node("small", ("k80", "k80"), "r2"),
    )
)

PATIENCE_S, SILENCE_S = 120.0, 20.0
"""for a busy machine, whose nodes must not be lost"""


def by_name(check: Any) -> str:
    return str(check.__name__.removeprefix("check_"))


@pytest.mark.parametrize("check", CHECKS, ids=by_name)
def test_local_engine_conforms(check: Any, tmp_path: Path) -> None:
    check(
        EngineFixture(
            make=lambda: LocalEngine(tmp_path / "data", LOCAL),
            root=tmp_path,
            cluster=LOCAL,
            patience_s=PATIENCE_S,
        )
    )


# -- Slurm --------------------------------------------------------------------------------------


def slurm_fixture(slurm: SlurmCluster, root: Path) -> EngineFixture:
    async def lose(node: str) -> None:
        await asyncio.to_thread(slurm.kill_node, node)

    async def return_node(node: str) -> None:
        slurm.start_node(node)

    return EngineFixture(
        make=lambda: SlurmEngine(root / "data", silence_s=SILENCE_S),
        root=root,
        cluster=slurm.cluster,
        patience_s=PATIENCE_S,
        orphans=lambda: slurm.run("squeue", "--noheader", "--format=%j %T").splitlines(),
        lose=lose,
        return_node=return_node,
    )


@pytest.mark.slow
@pytest.mark.parametrize("check", CHECKS, ids=by_name)
def test_slurm_engine_conforms(check: Any, slurm: SlurmCluster, tmp_path: Path) -> None:
    check(slurm_fixture(slurm, tmp_path))


# -- Ray ----------------------------------------------------------------------------------------


def ray_fixture(ray: RayCluster, root: Path) -> EngineFixture:
    async def lose(node: str) -> None:
        await asyncio.to_thread(ray.kill_node, node)

    async def return_node(node: str) -> None:
        await asyncio.to_thread(ray.start_node, node)

    return EngineFixture(
        make=lambda: RayEngine(root / "data", silence_s=SILENCE_S, **ray.options),
        root=root,
        cluster=ray.cluster,
        patience_s=PATIENCE_S,
        orphans=ray.groups,
        lose=lose,
        return_node=return_node,
    )


@pytest.mark.slow
@pytest.mark.parametrize("check", CHECKS, ids=by_name)
def test_ray_engine_conforms(check: Any, ray: RayCluster, tmp_path: Path) -> None:
    check(ray_fixture(ray, tmp_path))


# -- the suite itself ---------------------------------------------------------------------------


class ForgetsRacks(LocalEngine):
    async def inventory(self) -> Cluster:
        cluster = await super().inventory()
        return Cluster(tuple(replace(node, rack="") for node in cluster.nodes))


class CrowdsOneDevice(LocalEngine):
    async def launch(self, order: LaunchOrder) -> None:
        await super().launch(replace(order, devices=(order.devices[0],) * len(order.devices)))


class RunsAgain(LocalEngine):
    async def launch(self, order: LaunchOrder) -> None:
        shutil.rmtree(self._root / str(order.lease), ignore_errors=True)
        await super().launch(order)


class KillsAtOnce(LocalEngine):
    async def stop(self, lease: int) -> None:
        if lease in self._pidfds:
            signal.pidfd_send_signal(self._pidfds[lease], signal.SIGKILL)


class HidesOutcomes(LocalEngine):
    def reports(self) -> AsyncIterator[Report]:
        return self._only_starts()

    async def _only_starts(self) -> AsyncIterator[Report]:
        async for report in super().reports():
            if not isinstance(report, Ended):
                yield report


class IgnoresTheFence(LocalEngine):
    async def launch(self, order: LaunchOrder) -> None:
        await super().launch(replace(order, checkpoint_dir=order.checkpoint_dir + "-other"))


class LeavesFilesOpen(LocalEngine):
    async def launch(self, order: LaunchOrder) -> None:
        await super().launch(order)
        OPEN.append(os.open("/dev/null", os.O_RDONLY))


OPEN: list[int] = []


@pytest.mark.parametrize(
    ("engine", "check", "message", "patience_s"),
    [
        (
            ForgetsRacks,
            launches.check_inventory_is_complete,
            "inventory",
            PATIENCE_S,
        ),
        (CrowdsOneDevice, launches.check_gang_over_nodes_connects, "use", PATIENCE_S),
        (RunsAgain, launches.check_calls_are_idempotent, "timed out|ran|starts|differ", 4.0),
        (
            KillsAtOnce,
            ends.check_stop_grants_the_grace_period_before_killing,
            "ended lost",
            PATIENCE_S,
        ),
        (
            HidesOutcomes,
            ends.check_outcomes_are_reported,
            "timed out after .* waiting for the end",
            4.0,
        ),
        (
            IgnoresTheFence,
            ends.check_fenced_launch_starts_nothing,
            "timed out|ended",
            4.0,
        ),
        (
            LeavesFilesOpen,
            restarts.check_repeated_launches_leak_nothing,
            "open",
            PATIENCE_S,
        ),
    ],
)
def test_suite_detects_broken_engines(
    engine: type[LocalEngine], check: Any, message: str, patience_s: float, tmp_path: Path
) -> None:
    fixture = EngineFixture(
        make=lambda: engine(tmp_path / "data", LOCAL),
        root=tmp_path,
        cluster=LOCAL,
        patience_s=patience_s,
    )
    settings = {"rounds": 8} if engine is LeavesFilesOpen else {}
    with pytest.raises(ContractViolationError, match=message):
        check(fixture, **settings)
    while OPEN:
        os.close(OPEN.pop())
