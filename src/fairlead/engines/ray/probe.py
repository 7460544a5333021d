"""Looks at a Ray cluster for a check-up: which nodes there are, and what each of them sees.

``python -m fairlead.engines.ray.probe ADDRESS HERE`` prints the nodes as JSON; with ``DIR NODE…``
after it, each node leaves its answer there (see ``probe``), or a log of why it could not.
"""

import asyncio
import json
import os
import sys
from pathlib import Path

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from fairlead.engines.ray.bridge import RayBridge
from fairlead.engines.shared.checkup.probe import answer

_PATIENCE_S = 25.0


def main() -> None:
    """Connect, and do what was asked."""
    address, here, *rest = sys.argv[1:]
    ray.init(
        address=address,
        log_to_driver=False,
        logging_level="warning",
        **({"_node_ip_address": here} if here else {}),
    )
    nodes = asyncio.run(RayBridge().nodes())
    if rest:
        # Under a name that lives others may have lived before.
        alive = {one["name"]: one["id"] for one in nodes if one["alive"]}
        _ask(Path(rest[0]), {name: alive[name] for name in rest[1:] if name in alive})
    else:
        sys.stdout.write(json.dumps(nodes) + "\n")
        sys.stdout.flush()
    # Not ray.shutdown(): it may wait for a head that is away.
    os._exit(0)


def _ask(directory: Path, ids: dict[str, str]) -> None:
    """Have every node answer, all at once."""
    asked = {}
    for name, number in ids.items():
        there = NodeAffinitySchedulingStrategy(number, soft=False)
        task = ray.remote(num_cpus=0, max_retries=0)(answer).options(scheduling_strategy=there)
        asked[name] = task.remote(directory, name)
    ray.wait(list(asked.values()), num_returns=len(asked), timeout=_PATIENCE_S)
    for name, reference in asked.items():
        try:
            ray.get(reference, timeout=0.1)
        except Exception as error:  # whatever it is, it is what there is to tell
            last = str(error).strip().rpartition("\n")[2]
            (directory / f"{name}.log").write_text(last, encoding="utf-8")


if __name__ == "__main__":
    main()
