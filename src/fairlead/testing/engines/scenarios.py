"""Scenes in which an engine is watched: its start, a gang's devices, what members were given."""

import asyncio
from collections.abc import Awaitable, Callable

from fairlead.engines.base import Order
from fairlead.model.cluster import Cluster
from fairlead.testing.contract import require
from fairlead.testing.engines.bench import Bench, Rig

Device = tuple[str, int]


def play(rig: Rig, scene: Callable[[Bench], Awaitable[None]]) -> None:
    """Play a scene on a new engine; whatever runs at its end is stopped."""

    async def all_of_it() -> None:
        bench = Bench(rig, rig.make())
        try:
            await bench.engine.adopt(())
            await scene(bench)
        finally:
            await bench.close()
            last = Bench(rig, rig.make(), orders=bench.orders)
            await last.engine.adopt(())  # nothing is ours any more: strangers are stopped
            alive = bench.orders
            await last.until(lambda: not any(map(last.alive, alive)), "all to stop", 60.0)
            await last.close()

    asyncio.run(all_of_it())


def devices_of(cluster: Cluster) -> list[Device]:
    """Return all devices of a cluster."""
    return [(node.id, i) for node in cluster.nodes for i in range(len(node.devices))]


def gang_of(cluster: Cluster) -> list[Device]:
    """Return a gang over as many nodes as there are, two devices of the first if it has them."""
    firsts = [(node.id, 0) for node in cluster.nodes if node.devices][:3]
    first = next(node for node in cluster.nodes if node.id == firsts[0][0])
    return [*firsts, (first.id, 1)] if len(first.devices) > 1 else firsts


def check_members(bench: Bench, order: Order) -> None:
    """Require that the members run where the order says, each on a device of its own."""
    members = bench.members(order.lease)
    places: list[tuple[str, str]] = []
    used: set[Device] = set()
    for rank, told in members.items():
        found = told["environment"]
        numbers = found["FAIRLEAD_DEVICES"].split(",")
        mine = (found["FAIRLEAD_NODE"], int(numbers[int(found["FAIRLEAD_LOCAL_RANK"])]))
        require(mine not in used, f"two members of lease {order.lease} use {mine}")
        used.add(mine)
        places.append((mine[0], found["FAIRLEAD_ACCELERATOR"]))
        require(told["alone"], f"{mine} is used by somebody else, too")
        require(told["times"] == 1, f"a member ran {told['times']} times")
        require(told["directory"] == order.directory, f"it runs in {told['directory']}")
        for name, value in {
            "FAIRLEAD_LEASE": str(order.lease),
            "FAIRLEAD_JOB": order.job,
            "FAIRLEAD_WORLD_SIZE": str(len(order.devices)),
            "FAIRLEAD_CHECKPOINT_DIR": order.checkpoint_dir,
            "FAIRLEAD_STEPS": str(order.total_steps),
            "RANK": str(rank),
            "WORLD_SIZE": str(len(order.devices)),
            "LOCAL_RANK": found["FAIRLEAD_LOCAL_RANK"],
            **order.environment,
        }.items():
            require(found.get(name) == value, f"{name} is {found.get(name)!r}, not {value!r}")
    # Devices of one accelerator on one node are alike; the engine may choose among them.
    wanted = sorted(
        (node, kind) for (node, _), kind in zip(order.devices, order.accelerators, strict=True)
    )
    require(sorted(places) == wanted, f"the gang is on {sorted(places)}, not on {wanted}")
