"""What every engine must do when leases are started, and when calls are repeated."""

import asyncio

from fairlead.model.cluster import Cluster
from fairlead.testing.contract import require
from fairlead.testing.engines.bench import Bench, Rig
from fairlead.testing.engines.scenes import (
    Device,
    check_members,
    devices_of,
    gang_of,
    play,
)


def check_inventory_says_types_counts_nodes_and_racks(rig: Rig) -> None:
    """The inventory is the cluster's, the same each time and for each engine object."""

    async def scene(bench: Bench) -> None:
        found = await bench.engine.inventory()
        require(found.nodes == rig.cluster.nodes, f"the inventory says {found.nodes}")
        again = await rig.make().inventory()
        require(again.nodes == found.nodes, "a second engine finds other nodes")

    play(rig, scene)


def check_member_finds_its_device_and_its_job(rig: Rig) -> None:
    """A job on one device gets that device, its directory, its environment, its lease."""

    async def scene(bench: Bench) -> None:
        for lease, device in enumerate(_first_of_each(rig.cluster), start=1):
            order = await bench.start(lease, [device])
            check_members(bench, order)
            require("MASTER_ADDR" not in order.environment, "the order was changed")
        await bench.until(lambda: bench.starts(1) == 1, "the report of the start")
        running = await bench.engine.running()
        require(running == set(bench.orders), f"running() says {running}")

    play(rig, scene)


def check_gang_over_nodes_meets(rig: Rig) -> None:
    """Members of a gang over nodes have ranks, own devices and an address where they meet."""

    async def scene(bench: Bench) -> None:
        order = await bench.start(1, gang_of(rig.cluster), "meet")
        check_members(bench, order)
        told = [one["environment"] for one in bench.members(1).values()]
        places = {(one["MASTER_ADDR"], one["MASTER_PORT"]) for one in told}
        require(len(places) == 1, f"members were told to meet at {places}")
        ended = await bench.ended(1)
        require(ended.ending == "finished", f"the gang did not meet: {ended}")
        require(ended.exit_codes == (0,) * len(told), f"exit codes are {ended.exit_codes}")

    play(rig, scene)


def _first_of_each(cluster: Cluster) -> list[Device]:
    """Return one device of every accelerator."""
    found: dict[str, Device] = {}
    for node in cluster.nodes:
        for number, accelerator in enumerate(node.devices):
            found.setdefault(accelerator, (node.id, number))
    return list(found.values())


def check_calls_can_be_repeated(rig: Rig) -> None:
    """A lease runs once, however often it is launched, stopped and asked about."""

    async def scene(bench: Bench) -> None:
        devices = devices_of(rig.cluster)[:1]
        order = bench.order(1, devices)
        await asyncio.gather(*(bench.engine.launch(order) for _ in range(3)))
        await bench.start(1, devices)
        await asyncio.gather(*(bench.engine.stop(1) for _ in range(3)))
        ended = await bench.ended(1)
        await bench.engine.stop(1)
        await bench.engine.launch(order)
        await bench.until(lambda: len(bench.ends(1)) == 2, "the end to be told again")
        require(bench.ends(1) == [ended, ended], f"the ends differ: {bench.ends(1)}")
        require(bench.members(1)[0]["times"] == 1, "the lease ran again")
        require(bench.starts(1) == 1, f"{bench.starts(1)} starts were reported")
        require(not await bench.engine.running(), "it runs on")

    play(rig, scene)


def check_lease_that_nobody_knows_can_be_stopped(rig: Rig) -> None:
    """Stopping what was never launched does no harm; a launch after that runs nothing for long."""

    async def scene(bench: Bench) -> None:
        await bench.engine.stop(7)
        order = bench.order(7, devices_of(rig.cluster)[:1], grace_s=2.0)
        await bench.engine.launch(order)
        ended = await bench.ended(7)
        require(ended.ending == "left", f"a lease stopped before its launch ended {ended.ending}")

    play(rig, scene)


def check_stop_right_after_launch_is_heard(rig: Rig) -> None:
    """A stop that comes while the lease is starting ends it, without waiting for its grace."""

    async def scene(bench: Bench) -> None:
        for lease in range(1, 5):
            order = bench.order(lease, devices_of(rig.cluster)[lease - 1 : lease], grace_s=120.0)
            await bench.engine.launch(order)
            await asyncio.sleep(0.1 * (lease - 1))
            await bench.engine.stop(lease)
        for lease in range(1, 5):
            ended = await bench.ended(lease)
            require(ended.ending == "left", f"lease {lease} ended {ended.ending}: {ended.message}")

    play(rig, scene)
