"""Runs scenarios on a fresh engine and checks the environment of members."""

import asyncio
from collections.abc import Awaitable, Callable

from fairlead.engines.base import LaunchOrder
from fairlead.model.cluster import Cluster
from fairlead.testing.contract import require
from fairlead.testing.engines.harness import EngineFixture, EngineHarness

Device = tuple[str, int]


def run_scenario(
    fixture: EngineFixture, scenario: Callable[[EngineHarness], Awaitable[None]]
) -> None:
    """Run a scenario on a new engine, and stop all leases at its end."""

    async def run() -> None:
        harness = EngineHarness(fixture, fixture.make())
        try:
            await harness.engine.adopt(())
            await scenario(harness)
        finally:
            await harness.close()
            last = EngineHarness(fixture, fixture.make(), orders=harness.orders)
            await last.engine.adopt(())  # without leases to adopt, all are orphans
            alive = harness.orders
            await last.until(lambda: not any(map(last.alive, alive)), "all to stop", 60.0)
            await last.close()

    asyncio.run(run())


def devices_of(cluster: Cluster) -> list[Device]:
    """Return all devices of a cluster."""
    return [(node.id, i) for node in cluster.nodes for i in range(len(node.devices))]


def gang_of(cluster: Cluster) -> list[Device]:
    """Return a gang over up to three nodes, with two devices of the first if it has them."""
    firsts = [(node.id, 0) for node in cluster.nodes if node.devices][:3]
    first = next(node for node in cluster.nodes if node.id == firsts[0][0])
    return [*firsts, (first.id, 1)] if len(first.devices) > 1 else firsts


def check_members(harness: EngineHarness, order: LaunchOrder) -> None:
    """Require that the members run as ordered, each on a separate device."""
    members = harness.members(order.lease)
    places: list[tuple[str, str]] = []
    used: set[Device] = set()
    for rank, report in members.items():
        environment = report["environment"]
        numbers = environment["FAIRLEAD_DEVICES"].split(",")
        local_rank = int(environment["FAIRLEAD_LOCAL_RANK"])
        device = (environment["FAIRLEAD_NODE"], int(numbers[local_rank]))
        require(device not in used, f"two members of lease {order.lease} use {device}")
        used.add(device)
        places.append((device[0], environment["FAIRLEAD_ACCELERATOR"]))
        require(report["alone"], f"{device} is used twice")
        require(report["times"] == 1, f"a member ran {report['times']} times")
        require(report["directory"] == order.directory, f"it runs in {report['directory']}")
        for name, value in {
            "FAIRLEAD_LEASE": str(order.lease),
            "FAIRLEAD_JOB": order.job,
            "FAIRLEAD_WORLD_SIZE": str(len(order.devices)),
            "FAIRLEAD_CHECKPOINT_DIR": order.checkpoint_dir,
            "FAIRLEAD_STEPS": str(order.total_steps),
            "RANK": str(rank),
            "WORLD_SIZE": str(len(order.devices)),
            "LOCAL_RANK": environment["FAIRLEAD_LOCAL_RANK"],
            **order.environment,
        }.items():
            actual = environment.get(name)
            require(actual == value, f"{name} is {actual!r}, expected {value!r}")
        for name in ("MASTER_ADDR", "MASTER_PORT"):
            require(bool(environment.get(name)), f"{name} is missing in a gang of any size")
    # Devices of one accelerator on one node are interchangeable.
    wanted = sorted(
        (node, accelerator)
        for (node, _), accelerator in zip(order.devices, order.accelerators, strict=True)
    )
    require(sorted(places) == wanted, f"the gang is on {sorted(places)}, expected {wanted}")
