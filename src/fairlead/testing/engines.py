"""What every engine must do: checks that take a rig and raise BrokenPromiseError.

A check makes its own engine, runs a probe program as a job, and looks at what the probe was given,
what the engine reports and what is left. ``CHECKS`` are the checks; run each on a fresh ``Rig``
root. The probe's processes must be visible on this machine, as those of a cluster on loopback are.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from pathlib import Path

from fairlead.engines.base import NodeDown, NodeUp, Order, Progressed
from fairlead.job import checkpoint
from fairlead.model.cluster import Cluster
from fairlead.testing.contract import require
from fairlead.testing.engines_bench import Bench, Rig, open_files

Check = Callable[[Rig], None]
Device = tuple[str, int]


def _run(rig: Rig, scene: Callable[[Bench], Awaitable[None]]) -> None:
    """Play a scene on a new engine; whatever runs at its end is stopped."""

    async def play() -> None:
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

    asyncio.run(play())


def _devices(cluster: Cluster) -> list[Device]:
    return [(node.id, i) for node in cluster.nodes for i in range(len(node.devices))]


def _gang(cluster: Cluster) -> list[Device]:
    """Return a gang over as many nodes as there are, two devices of the first if it has them."""
    firsts = [(node.id, 0) for node in cluster.nodes if node.devices][:3]
    first = next(node for node in cluster.nodes if node.id == firsts[0][0])
    return [*firsts, (first.id, 1)] if len(first.devices) > 1 else firsts


# -- what there is ------------------------------------------------------------------------------


def check_inventory_says_types_counts_nodes_and_racks(rig: Rig) -> None:
    """The inventory is the cluster's, the same each time and for each engine object."""

    async def scene(bench: Bench) -> None:
        found = await bench.engine.inventory()
        require(found.nodes == rig.cluster.nodes, f"the inventory says {found.nodes}")
        again = await rig.make().inventory()
        require(again.nodes == found.nodes, "a second engine finds other nodes")

    _run(rig, scene)


# -- starting -----------------------------------------------------------------------------------


def check_member_finds_its_device_and_its_job(rig: Rig) -> None:
    """A job on one device gets that device, its directory, its environment, its lease."""

    async def scene(bench: Bench) -> None:
        for lease, device in enumerate(_first_of_each(rig.cluster), start=1):
            order = await bench.start(lease, [device])
            _check_members(bench, order)
            require("MASTER_ADDR" not in order.environment, "the order was changed")
        await bench.until(lambda: bench.starts(1) == 1, "the report of the start")
        running = await bench.engine.running()
        require(running == set(bench.orders), f"running() says {running}")

    _run(rig, scene)


def check_gang_over_nodes_meets(rig: Rig) -> None:
    """Members of a gang over nodes have ranks, own devices and an address where they meet."""

    async def scene(bench: Bench) -> None:
        order = await bench.start(1, _gang(rig.cluster), "meet")
        _check_members(bench, order)
        told = [one["environment"] for one in bench.members(1).values()]
        places = {(one["MASTER_ADDR"], one["MASTER_PORT"]) for one in told}
        require(len(places) == 1, f"members were told to meet at {places}")
        ended = await bench.ended(1)
        require(ended.ending == "finished", f"the gang did not meet: {ended}")
        require(ended.exit_codes == (0,) * len(told), f"exit codes are {ended.exit_codes}")

    _run(rig, scene)


def _first_of_each(cluster: Cluster) -> list[Device]:
    """Return one device of every accelerator."""
    found: dict[str, Device] = {}
    for node in cluster.nodes:
        for number, accelerator in enumerate(node.devices):
            found.setdefault(accelerator, (node.id, number))
    return list(found.values())


def _check_members(bench: Bench, order: Order) -> None:
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


# -- repeated calls -----------------------------------------------------------------------------


def check_calls_can_be_repeated(rig: Rig) -> None:
    """A lease runs once, however often it is launched, stopped and asked about."""

    async def scene(bench: Bench) -> None:
        devices = _devices(rig.cluster)[:1]
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

    _run(rig, scene)


def check_lease_that_nobody_knows_can_be_stopped(rig: Rig) -> None:
    """Stopping what was never launched does no harm; a launch after that runs nothing for long."""

    async def scene(bench: Bench) -> None:
        await bench.engine.stop(7)
        order = bench.order(7, _devices(rig.cluster)[:1], grace_s=2.0)
        await bench.engine.launch(order)
        ended = await bench.ended(7)
        require(ended.ending == "left", f"a lease stopped before its launch ended {ended.ending}")

    _run(rig, scene)


def check_stop_right_after_launch_is_heard(rig: Rig) -> None:
    """A stop that comes while the lease is starting ends it, without waiting for its grace."""

    async def scene(bench: Bench) -> None:
        for lease in range(1, 5):
            order = bench.order(lease, _devices(rig.cluster)[lease - 1 : lease], grace_s=120.0)
            await bench.engine.launch(order)
            await asyncio.sleep(0.1 * (lease - 1))
            await bench.engine.stop(lease)
        for lease in range(1, 5):
            ended = await bench.ended(lease)
            require(ended.ending == "left", f"lease {lease} ended {ended.ending}: {ended.message}")

    _run(rig, scene)


# -- ending -------------------------------------------------------------------------------------


def check_stop_lets_members_save_and_kills_the_deaf(rig: Rig) -> None:
    """Members are told to leave and have their grace; after it they are killed, not before."""

    async def scene(bench: Bench) -> None:
        loop = asyncio.get_running_loop()
        gang = _gang(rig.cluster)
        await bench.start(1, gang)
        await bench.engine.stop(1)
        ended = await bench.ended(1)
        require(ended.ending == "left", f"a polite gang ended {ended.ending}: {ended.message}")
        require(bench.left(1) == len(gang), f"{bench.left(1)} members were told to leave")
        await bench.start(2, gang, "deaf", grace_s=2.0)
        began = loop.time()
        await bench.engine.stop(2)
        ended = await bench.ended(2)
        taken = loop.time() - began
        require(ended.ending == "left", f"a deaf gang ended {ended.ending}: {ended.message}")
        require(1.9 < taken < 8.0, f"a grace of 2 s took {taken:.1f} s")
        require(set(ended.exit_codes) == {-9}, f"exit codes are {ended.exit_codes}")
        require(bench.alive(2) == 0, "its processes live")

    _run(rig, scene)


def check_ends_are_told_as_they_were(rig: Rig) -> None:
    """Finished, left, failed: with exit codes, and the steps of the checkpoint in force."""

    async def scene(bench: Bench) -> None:
        devices = _devices(rig.cluster)[:3]
        for lease, (code, ending) in enumerate(
            [(0, "finished"), (85, "left"), (3, "failed")], start=1
        ):
            order = bench.order(lease, [devices[lease - 1]], "exit", code)
            checkpoint.raise_fence(order.checkpoint_dir, lease)
            checkpoint.write(order.checkpoint_dir, lease, 4 + lease, 0, b"")
            checkpoint.commit(order.checkpoint_dir, lease, 4 + lease, 1)
            await bench.engine.launch(order)
            ended = await bench.ended(lease)
            found = (ended.ending, ended.exit_codes, ended.steps)
            wanted = (ending, (code,), 4.0 + lease)
            require(found == wanted, f"exit {code} gave {found}, not {wanted}")
        require(not await bench.engine.running(), "something runs on")

    _run(rig, scene)


def check_member_that_fails_ends_its_gang(rig: Rig) -> None:
    """When one member of a gang over nodes fails, the others are told to leave."""

    async def scene(bench: Bench) -> None:
        gang = _gang(rig.cluster)
        await bench.start(1, gang, "fails-on", len(gang) - 1)
        ended = await bench.ended(1)
        require(ended.ending == "failed", f"the gang ended {ended.ending}")
        require(3 in ended.exit_codes, f"exit codes are {ended.exit_codes}")
        require("3" in ended.message, f"the message does not say why: {ended.message!r}")
        require(bench.left(1) == len(gang) - 1, "the others were not told to leave")

    _run(rig, scene)


def check_launch_behind_the_fence_starts_nothing(rig: Rig) -> None:
    """A lease of a job that a later lease may write for is refused."""

    async def scene(bench: Bench) -> None:
        order = bench.order(3, _devices(rig.cluster)[:1])
        checkpoint.raise_fence(order.checkpoint_dir, 9)
        await bench.engine.launch(order)
        ended = await bench.ended(3)
        require(ended.ending == "refused", f"it ended {ended.ending}")
        require(not bench.members(3), "its processes were started")

    _run(rig, scene)


def check_output_and_progress_can_be_followed(rig: Rig) -> None:
    """What members print is in the log directory while they run; steps in it are reported."""

    async def scene(bench: Bench) -> None:
        gang = _gang(rig.cluster)
        order = await bench.start(1, gang, progress_pattern=r"step (\d+)")

        def spoken() -> bool:
            return all(f"member {rank} of" in _log(order, rank) for rank in range(len(gang)))

        await bench.until(spoken, "the logs of all members")
        await bench.until(lambda: Progressed(1, 3.0) in bench.seen, "the report of progress")
        await bench.engine.stop(1)
        ended = await bench.ended(1)
        require(ended.steps == 3.0, f"the steps it printed are {ended.steps}")
        require(spoken(), "the logs are gone")

    _run(rig, scene)


def _log(order: Order, rank: int) -> str:
    path = Path(order.log_dir) / f"{order.lease}.{rank}.log"
    return path.read_text(encoding="utf-8") if path.exists() else ""


# -- restarts -----------------------------------------------------------------------------------


def check_new_engine_adopts_what_runs_and_stops_the_rest(rig: Rig) -> None:
    """After a restart leases go on, strangers are stopped, and what ended meanwhile is told."""

    async def scene(bench: Bench) -> None:
        one, other, short, late = _devices(rig.cluster)[:4]
        await bench.start(1, [one])
        await bench.start(2, [other])
        await bench.start(3, [short], "wait", 0.1)
        await bench.engine.launch(bench.order(4, [late]))  # the crash comes while it starts
        after = await bench.again()
        await after.engine.adopt([1, 3, 4, 9])
        require((await after.ended(9)).ending == "lost", "a lease that nobody started ended well")
        require((await after.ended(3)).ending == "finished", "what ended meanwhile was lost")
        await after.until(lambda: bench.alive(2) == 0, "the stranger to leave")
        require(bench.left(2) == 1, "the stranger was killed without a word")
        await after.until(
            lambda: bool(after.members(4) or after.ends(4)), "news of the lease that was starting"
        )
        # It may go on or be given up, but nobody may run a lease that was.
        on = [1] if after.ends(4) else [1, 4]
        running = await after.engine.running()
        require(running == set(on), f"running() says {running}, not {on}")
        for lease in on:
            require(after.members(lease)[0]["times"] == 1, f"lease {lease} was started twice")
            require(not after.ends(lease), f"lease {lease} did not go on: {after.ends(lease)}")
            await after.engine.stop(lease)
            require((await after.ended(lease)).ending == "left", "an adopted lease did not leave")
        require(4 in on or not after.members(4), "a lease that was given up ran")
        require(not after.ends(2), "the end of a stranger was reported")
        await after.close()

    _run(rig, scene)


# -- many ---------------------------------------------------------------------------------------


def check_no_device_is_used_twice(rig: Rig, *, seed: int = 1, leases: int = 24) -> None:
    """Leases that follow one another on the same devices never meet there."""

    async def scene(bench: Bench) -> None:
        rng = random.Random(seed)
        free, held = _devices(rig.cluster), dict[int, list[Device]]()
        for lease in range(1, leases + 1):
            while len(free) < 2:
                ending = rng.choice(list(held))
                await bench.engine.stop(ending)
                await bench.ended(ending)
                free += held.pop(ending)
            rng.shuffle(free)
            held[lease] = [free.pop() for _ in range(rng.choice((1, 1, 2)))]
            await bench.engine.launch(bench.order(lease, held[lease]))
        for lease in held:
            await bench.spoken(lease)
        ran = 0
        for lease in bench.orders:
            for told in bench.members(lease).values():
                ran += 1
                require(told["alone"], f"a device of lease {lease} was used by another one, too")
        require(ran >= leases // 2, f"only {ran} members ran")

    _run(rig, scene)


def check_fifty_launches_and_stops_leave_nothing_behind(rig: Rig, *, rounds: int = 50) -> None:
    """No process, no open file, nothing in the cluster manager is left."""

    async def scene(bench: Bench) -> None:
        devices = _devices(rig.cluster)[:4]
        before = -1
        for first in range(1, rounds + 1, len(devices)):
            some = range(first, min(first + len(devices), rounds + 1))
            for lease, where in zip(some, devices, strict=False):
                how = () if lease % 2 else ("exit", 0)
                await bench.engine.launch(bench.order(lease, [where], *how))
            for lease in some:
                await bench.spoken(lease)
                await bench.engine.stop(lease)
                await bench.ended(lease)
            if before < 0 and some[-1] >= rounds // 2:
                before = open_files()
        require(not await bench.engine.running(), f"{await bench.engine.running()} run on")
        for lease in bench.orders:
            require(bench.alive(lease) == 0, f"a process of lease {lease} is left")
        require(open_files() <= before + 2, f"{open_files() - before} files more are open")
        await bench.until(lambda: not rig.leftovers(), f"{rig.leftovers()} to go")

    _run(rig, scene)


# -- nodes --------------------------------------------------------------------------------------


def check_loss_and_return_of_a_node_are_told(rig: Rig) -> None:
    """A lost node is reported, the gang on it ends, its writers are fenced; then it is back."""
    if rig.lose is None or rig.give_back is None:
        return
    lose, give_back = rig.lose, rig.give_back

    async def scene(bench: Bench) -> None:
        gang = _gang(rig.cluster)
        victim = gang[1][0]
        order = await bench.start(1, gang)
        other = next(d for d in _devices(rig.cluster) if d[0] not in {node for node, _ in gang})
        await bench.start(2, [other])
        await lose(victim)
        try:
            await bench.node(NodeDown(victim))
            await bench.engine.stop(1)
            ended = await bench.ended(1)
            require(ended.ending == "lost", f"a gang that lost a node ended {ended.ending}")
            require(checkpoint.fence(order.checkpoint_dir) > 1, "its writers are not fenced off")
            require(2 in await bench.engine.running(), "a lease elsewhere was lost, too")
            downs = [one for one in bench.seen if isinstance(one, NodeDown)]
            require(downs == [NodeDown(victim)], f"also reported: {downs}")
        finally:
            await give_back(victim)
        await bench.node(NodeUp(victim), 120.0)
        await bench.start(3, [gang[1]])
        _check_members(bench, bench.orders[3])

    _run(rig, scene)


CHECKS: tuple[Check, ...] = (
    check_inventory_says_types_counts_nodes_and_racks,
    check_member_finds_its_device_and_its_job,
    check_gang_over_nodes_meets,
    check_calls_can_be_repeated,
    check_lease_that_nobody_knows_can_be_stopped,
    check_stop_right_after_launch_is_heard,
    check_stop_lets_members_save_and_kills_the_deaf,
    check_ends_are_told_as_they_were,
    check_member_that_fails_ends_its_gang,
    check_launch_behind_the_fence_starts_nothing,
    check_output_and_progress_can_be_followed,
    check_new_engine_adopts_what_runs_and_stops_the_rest,
    check_no_device_is_used_twice,
    check_fifty_launches_and_stops_leave_nothing_behind,
    check_loss_and_return_of_a_node_are_told,
)
