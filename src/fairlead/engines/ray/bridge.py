"""The process that speaks to Ray for the scheduler: requests on stdin, answers on stdout.

Ray ends a process that is connected to it when its head is away for long, and may be connected to
one cluster only; the scheduler must outlive both. So it asks a process of its own, which does as
it is told and decides nothing: ``python -m fairlead.engines.ray.bridge ADDRESS HERE``. Requests
are ``(number, method, arguments)``, answers ``(number, error or None, value)``.
"""

import asyncio
import os
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import ray
from ray._private.state import available_resources_per_node
from ray.exceptions import RayError as Refused
from ray.util.placement_group import (
    get_placement_group,
    placement_group,
    placement_group_table,
    remove_placement_group,
)
from ray.util.scheduling_strategies import (
    NodeAffinitySchedulingStrategy,
    PlacementGroupSchedulingStrategy,
)

import fairlead
from fairlead.engines.ray.node_agent import Warden
from fairlead.engines.ray.pipe import receive, send

NAMESPACE = "fairlead"
_THREADS = 64
"""for calls to Ray that wait: one for each lease that waits for its devices"""


class RayBridge:
    """What the scheduler asks of Ray, one method for each."""

    def __init__(self) -> None:
        self._agents: dict[str, Any] = {}
        """Ray's number of a node → its supervising actor"""

    async def nodes(self) -> list[dict[str, Any]]:
        """Return all nodes that Ray knows, dead ones too, with what is not given out."""
        return await asyncio.to_thread(_nodes)

    async def groups(self, prefix: str) -> list[dict[str, Any]]:
        """Return the placement groups whose names begin with this."""
        found = await asyncio.to_thread(placement_group_table)
        return [
            {"name": one["name"], "bundles": one["bundles"], "nodes": one["bundles_to_node_id"]}
            for one in found.values()
            if one["name"].startswith(prefix) and one["state"] != "REMOVED"
        ]

    async def reserve(
        self, name: str, bundles: Sequence[Mapping[str, float]], within_s: float
    ) -> bool:
        """Hold these resources under a name; tell whether Ray has given them in time."""
        try:
            group = await asyncio.to_thread(get_placement_group, name)
        except ValueError:
            group = await asyncio.to_thread(
                placement_group, [dict(one) for one in bundles], "PACK", name, "detached"
            )
        if await asyncio.to_thread(group.wait, within_s):
            return True
        await asyncio.to_thread(remove_placement_group, group)
        return False

    async def release(self, name: str) -> None:
        """Let go of what is held under a name."""
        try:
            group = await asyncio.to_thread(get_placement_group, name)
        except ValueError:
            return
        await asyncio.to_thread(remove_placement_group, group)

    async def gpus(self, name: str, counts: Mapping[int, int]) -> dict[int, list[str]]:
        """Return which GPUs the bundles of a placement group hold, as Ray calls them."""
        group = await asyncio.to_thread(get_placement_group, name)
        asked = {
            index: _gpus.options(
                num_gpus=count,
                scheduling_strategy=PlacementGroupSchedulingStrategy(
                    group, placement_group_bundle_index=index
                ),
            ).remote()
            for index, count in counts.items()
        }
        return {index: await told for index, told in asked.items()}

    async def warm(self, node: str) -> None:
        """Have Ray start a worker on a node now, so that ``gpus`` need not wait for one."""
        here = NodeAffinitySchedulingStrategy(node, soft=False)
        await _gpus.options(scheduling_strategy=here).remote()

    async def call(self, node: str, method: str, *arguments: object) -> Any:
        """Return what the supervising actor of a node answers; it is started if there is none."""
        warden = self._agents.get(node)
        if warden is None:
            warden = self._agents[node] = _node_agent(node)
        try:
            return await getattr(warden, method).remote(*arguments)
        except ray.exceptions.RayActorError:
            if self._agents.get(node) is warden:
                del self._agents[node]
            raise

    async def end(self, node: str) -> None:
        """Have Ray kill the supervising actor of a node, which does not answer."""
        warden = self._agents.pop(node, None) or _node_agent(node)
        await asyncio.to_thread(ray.kill, warden)


def _nodes() -> list[dict[str, Any]]:
    here = ray.get_runtime_context().get_node_id()
    if any(one["NodeID"] == here and not one["Alive"] for one in ray.nodes()):
        os._exit(1)  # without a living node of its own no task of ours would ever start
    free = available_resources_per_node()
    return [
        {
            "id": one["NodeID"],
            "name": one["NodeName"],
            "address": one["NodeManagerAddress"],
            "alive": one["Alive"],
            "resources": one["Resources"],
            "labels": one.get("Labels", {}),
            "free": free.get(one["NodeID"], {}),
        }
        for one in ray.nodes()
    ]


def _visible_gpus() -> list[str]:
    found = ray.get_runtime_context().get_accelerator_ids()
    return [str(one) for one in found.get("GPU", ())]


_gpus = ray.remote(num_cpus=0, max_calls=0)(_visible_gpus)


def _node_agent(node: str) -> Any:
    """Return the supervising actor of a node: there is one, whoever asks first starts it."""
    return (
        ray.remote(Warden)
        .options(
            name=f"warden-{fairlead.__version__}-{node}",
            lifetime="detached",
            get_if_exists=True,
            max_restarts=0,  # the scheduler decides what is started again
            num_cpus=0,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False),
        )
        .remote()
    )


async def _serve(answers: int) -> None:
    """Answer until the scheduler closes the pipe or is dead."""
    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(_THREADS))
    bridge, tasks = RayBridge(), set[asyncio.Task[None]]()

    async def answer(number: int, method: str, arguments: tuple[Any, ...]) -> None:
        said: tuple[int, str | None, Any]
        try:
            said = (number, None, await getattr(bridge, method)(*arguments))
        except (Refused, ValueError, RuntimeError, OSError, KeyError) as error:
            last = str(error).strip().rpartition("\n")[2]  # before it: a trace of calls
            said = (number, f"{type(error).__name__}: {last}", None)
        send(answers, said)  # whoever reads has a thread for it, so this does not wait for long

    while (request := await asyncio.to_thread(receive, 0)) is not None:
        task = asyncio.create_task(answer(*request))
        tasks.add(task)
        task.add_done_callback(tasks.discard)


def main() -> None:
    """Connect to the cluster at an address, from a node of it, and answer requests."""
    answers = os.dup(1)
    os.dup2(2, 1)  # what Ray prints is not an answer
    address, here = sys.argv[1:3]
    ray.init(
        address=address,
        namespace=NAMESPACE,
        log_to_driver=False,
        logging_level="warning",
        **({"_node_ip_address": here} if here else {}),
    )
    send(answers, (0, None, None))
    asyncio.run(_serve(answers))
    # Not ray.shutdown(): it may wait for a head that is away. What we started is detached.
    os._exit(0)


if __name__ == "__main__":
    main()
