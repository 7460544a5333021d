"""The bridge: a process that calls Ray for the scheduler, requests on stdin, answers on stdout.

Ray ends a connected process when its head is unreachable for too long, and a process can connect
to one cluster only; the scheduler must outlive both. The bridge makes no decisions:
``python -m fairlead.engines.ray.bridge ADDRESS HERE``. Requests are ``(number, method,
arguments)``, answers ``(number, error or None, value)``.
"""

import asyncio
import os
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import ray
from ray._private.state import available_resources_per_node
from ray.exceptions import RayError
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

from fairlead.engines.ray.node_agent import PROTOCOL, NodeAgent
from fairlead.engines.ray.pipe import receive, send
from fairlead.version import __version__

NAMESPACE = "fairlead"
_THREADS = 64
"""maximum of blocking calls to Ray: one for each lease that waits for its devices"""


class RayBridge:
    """The scheduler's requests to Ray, one method for each."""

    def __init__(self) -> None:
        self._agents: dict[str, Any] = {}
        """Ray's ID of a node → its node agent"""

    async def nodes(self) -> list[dict[str, Any]]:
        """Return all nodes that Ray lists, dead ones too, with their free resources."""
        return await asyncio.to_thread(_nodes)

    async def groups(self, prefix: str) -> list[dict[str, Any]]:
        """Return the placement groups whose names start with a prefix."""
        groups = await asyncio.to_thread(placement_group_table)
        return [
            {
                "name": group["name"],
                "bundles": group["bundles"],
                "nodes": group["bundles_to_node_id"],
            }
            for group in groups.values()
            if group["name"].startswith(prefix) and group["state"] != "REMOVED"
        ]

    async def reserve(
        self, name: str, bundles: Sequence[Mapping[str, float]], within_s: float
    ) -> bool:
        """Create a placement group; return whether Ray allocated its resources in time."""
        try:
            group = await asyncio.to_thread(get_placement_group, name)
        except ValueError:
            group = await asyncio.to_thread(
                placement_group, [dict(bundle) for bundle in bundles], "PACK", name, "detached"
            )
        if await asyncio.to_thread(group.wait, within_s):
            return True
        await asyncio.to_thread(remove_placement_group, group)
        return False

    async def release(self, name: str) -> None:
        """Remove a placement group if it exists."""
        try:
            group = await asyncio.to_thread(get_placement_group, name)
        except ValueError:
            return
        await asyncio.to_thread(remove_placement_group, group)

    async def gpus(self, name: str, counts: Mapping[int, int]) -> dict[int, list[str]]:
        """Return Ray's IDs of the GPUs that the bundles of a placement group hold."""
        group = await asyncio.to_thread(get_placement_group, name)
        tasks = {
            index: _gpus.options(
                num_gpus=count,
                scheduling_strategy=PlacementGroupSchedulingStrategy(
                    group, placement_group_bundle_index=index
                ),
            ).remote()
            for index, count in counts.items()
        }
        return {index: await task for index, task in tasks.items()}

    async def prestart_worker(self, node: str) -> None:
        """Start a Ray worker on a node, so that ``gpus`` need not wait for one."""
        affinity = NodeAffinitySchedulingStrategy(node, soft=False)
        await _gpus.options(scheduling_strategy=affinity).remote()

    async def call(self, node: str, method: str, *arguments: object) -> Any:
        """Return the answer of a node's agent, which is started if necessary."""
        agent = self._agents.get(node)
        if agent is None:
            agent = self._agents[node] = _node_agent(node)
        try:
            return await getattr(agent, method).remote(*arguments)
        except ray.exceptions.RayActorError:
            if self._agents.get(node) is agent:
                del self._agents[node]
            raise

    async def kill_agent(self, node: str) -> None:
        """Kill a node's agent that does not answer."""
        agent = self._agents.pop(node, None) or _node_agent(node)
        await asyncio.to_thread(ray.kill, agent)


def _nodes() -> list[dict[str, Any]]:
    here = ray.get_runtime_context().get_node_id()
    if any(node["NodeID"] == here and not node["Alive"] for node in ray.nodes()):
        os._exit(1)  # without a living local node none of our tasks would ever start
    free = available_resources_per_node()
    return [
        {
            "id": node["NodeID"],
            "name": node["NodeName"],
            "address": node["NodeManagerAddress"],
            "alive": node["Alive"],
            "resources": node["Resources"],
            "labels": node.get("Labels", {}),
            "free": free.get(node["NodeID"], {}),
        }
        for node in ray.nodes()
    ]


def _visible_gpus() -> list[str]:
    accelerators = ray.get_runtime_context().get_accelerator_ids()
    return [str(gpu) for gpu in accelerators.get("GPU", ())]


_gpus = ray.remote(num_cpus=0, max_calls=0)(_visible_gpus)


def _node_agent(node: str) -> Any:
    """Return the agent of a node; the first caller starts it."""
    return (
        ray.remote(NodeAgent)
        .options(
            name=f"node-agent-{PROTOCOL}-{__version__}-{node}",
            lifetime="detached",
            get_if_exists=True,
            max_restarts=0,  # the scheduler decides on restarts
            num_cpus=0,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False),
        )
        .remote()
    )


async def _serve(answers: int) -> None:
    """Answer requests until the scheduler closes the pipe or dies."""
    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(_THREADS))
    bridge, tasks = RayBridge(), set[asyncio.Task[None]]()

    async def answer(number: int, method: str, arguments: tuple[Any, ...]) -> None:
        reply: tuple[int, str | None, Any]
        try:
            reply = (number, None, await getattr(bridge, method)(*arguments))
        except (RayError, ValueError, RuntimeError, OSError, KeyError) as error:
            last = str(error).strip().rpartition("\n")[2]  # the lines before it are a traceback
            reply = (number, f"{type(error).__name__}: {last}", None)
        send(answers, reply)  # a thread reads at the other end, so this blocks only briefly

    while (request := await asyncio.to_thread(receive, 0)) is not None:
        task = asyncio.create_task(answer(*request))
        tasks.add(task)
        task.add_done_callback(tasks.discard)


def main() -> None:
    """Connect to the cluster at an address from one of its nodes, and answer requests."""
    answers = os.dup(1)
    os.dup2(2, 1)  # Ray's own output must not mix with the answers
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
    # Not ray.shutdown(): it may wait for an unreachable head. Agents and groups are detached.
    os._exit(0)


if __name__ == "__main__":
    main()
