"""Engine checks: launches and repeated calls."""

import asyncio

from fairlead.model.cluster import Cluster
from fairlead.testing.contract import require
from fairlead.testing.engines.harness import EngineFixture, EngineHarness
from fairlead.testing.engines.scenarios import (
    Device,
    check_members,
    devices_of,
    gang_of,
    run_scenario,
)


def check_inventory_is_complete(fixture: EngineFixture) -> None:
    """The inventory equals the cluster, for every call and every engine object."""

    async def scenario(harness: EngineHarness) -> None:
        inventory = await harness.engine.inventory()
        require(inventory.nodes == fixture.cluster.nodes, f"the inventory has {inventory.nodes}")
        again = await fixture.make().inventory()
        require(again.nodes == inventory.nodes, "a second engine has different nodes")

    run_scenario(fixture, scenario)


def check_member_gets_device_and_environment(fixture: EngineFixture) -> None:
    """A job on one device gets that device, its directory, environment and lease."""

    async def scenario(harness: EngineHarness) -> None:
        for lease, device in enumerate(_first_of_each(fixture.cluster), start=1):
            order = await harness.start(lease, [device])
            check_members(harness, order)
            require("MASTER_ADDR" not in order.environment, "the launch order was modified")
        await harness.until(lambda: harness.starts(1) == 1, "the report of the start")
        running = await harness.engine.running()
        require(running == set(harness.orders), f"running() returns {running}")

    run_scenario(fixture, scenario)


def check_gang_over_nodes_connects(fixture: EngineFixture) -> None:
    """Members of a gang over nodes have ranks, separate devices and a common address."""

    async def scenario(harness: EngineHarness) -> None:
        order = await harness.start(1, gang_of(fixture.cluster), "meet")
        check_members(harness, order)
        environments = [member["environment"] for member in harness.members(1).values()]
        addresses = {(env["MASTER_ADDR"], env["MASTER_PORT"]) for env in environments}
        require(len(addresses) == 1, f"members have different addresses: {addresses}")
        ended = await harness.ended(1)
        require(ended.ending == "finished", f"the gang did not connect: {ended}")
        require(ended.exit_codes == (0,) * len(environments), f"exit codes are {ended.exit_codes}")

    run_scenario(fixture, scenario)


def _first_of_each(cluster: Cluster) -> list[Device]:
    """Return one device of every accelerator."""
    first: dict[str, Device] = {}
    for node in cluster.nodes:
        for number, accelerator in enumerate(node.devices):
            first.setdefault(accelerator, (node.id, number))
    return list(first.values())


def check_calls_are_idempotent(fixture: EngineFixture) -> None:
    """A lease runs once, regardless of repeated launches and stops."""

    async def scenario(harness: EngineHarness) -> None:
        devices = devices_of(fixture.cluster)[:1]
        order = harness.order(1, devices)
        await asyncio.gather(*(harness.engine.launch(order) for _ in range(3)))
        await harness.start(1, devices)
        await asyncio.gather(*(harness.engine.stop(1) for _ in range(3)))
        ended = await harness.ended(1)
        await harness.engine.stop(1)
        await harness.engine.launch(order)
        await harness.until(lambda: len(harness.ends(1)) == 2, "the repeated report of the end")
        require(harness.ends(1) == [ended, ended], f"the ends differ: {harness.ends(1)}")
        require(harness.members(1)[0]["times"] == 1, "the lease ran again")
        require(harness.starts(1) == 1, f"{harness.starts(1)} starts were reported")
        require(not await harness.engine.running(), "the lease is still running")

    run_scenario(fixture, scenario)


def check_unknown_lease_can_be_stopped(fixture: EngineFixture) -> None:
    """Stopping an unknown lease is harmless; a later launch of it ends soon."""

    async def scenario(harness: EngineHarness) -> None:
        await harness.engine.stop(7)
        order = harness.order(7, devices_of(fixture.cluster)[:1], grace_s=2.0)
        await harness.engine.launch(order)
        ended = await harness.ended(7)
        require(ended.ending == "left", f"a lease stopped before its launch ended {ended.ending}")

    run_scenario(fixture, scenario)


def check_stop_right_after_launch_is_honoured(fixture: EngineFixture) -> None:
    """A stop during the start ends the lease without waiting for its grace period."""

    async def scenario(harness: EngineHarness) -> None:
        for lease in range(1, 5):
            order = harness.order(
                lease, devices_of(fixture.cluster)[lease - 1 : lease], grace_s=120.0
            )
            await harness.engine.launch(order)
            await asyncio.sleep(0.1 * (lease - 1))
            await harness.engine.stop(lease)
        for lease in range(1, 5):
            ended = await harness.ended(lease)
            require(ended.ending == "left", f"lease {lease} ended {ended.ending}: {ended.message}")

    run_scenario(fixture, scenario)
