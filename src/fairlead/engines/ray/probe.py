"""Probe of a Ray cluster for ``fairlead doctor``: lists its nodes and checks each of them.

``python -m fairlead.engines.ray.probe ADDRESS HERE`` prints the nodes as JSON. With ``DIR NODE…``
after it, each node writes its answer to DIR (see ``shared.checkup.probe``), or the error to a log.
"""

import asyncio
import json
import os
import sys
from pathlib import Path

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from fairlead.engines.ray.bridge import RayBridge
from fairlead.engines.shared.checkup.probe import write_answer

_TIMEOUT_S = 25.0


def main() -> None:
    """Connect to Ray; print its nodes or probe the named ones."""
    address, here, *rest = sys.argv[1:]
    ray.init(
        address=address,
        log_to_driver=False,
        logging_level="warning",
        **({"_node_ip_address": here} if here else {}),
    )
    nodes = asyncio.run(RayBridge().nodes())
    if rest:
        # Dead nodes may have had the same name as a living one.
        alive = {node["name"]: node["id"] for node in nodes if node["alive"]}
        _probe_nodes(Path(rest[0]), {name: alive[name] for name in rest[1:] if name in alive})
    else:
        sys.stdout.write(json.dumps(nodes) + "\n")
        sys.stdout.flush()
    # Not ray.shutdown(): it may wait for an unreachable head.
    os._exit(0)


def _probe_nodes(directory: Path, ids: dict[str, str]) -> None:
    """Probe all nodes at the same time."""
    tasks = {}
    for name, node in ids.items():
        affinity = NodeAffinitySchedulingStrategy(node, soft=False)
        probe = ray.remote(num_cpus=0, max_retries=0)(write_answer)
        tasks[name] = probe.options(scheduling_strategy=affinity).remote(directory, name)
    ray.wait(list(tasks.values()), num_returns=len(tasks), timeout=_TIMEOUT_S)
    for name, task in tasks.items():
        try:
            ray.get(task, timeout=0.1)
        except Exception as error:  # any error goes to the node's log
            last = str(error).strip().rpartition("\n")[2]
            (directory / f"{name}.log").write_text(last, encoding="utf-8")


if __name__ == "__main__":
    main()
