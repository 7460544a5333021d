"""The process that holds a private Ray's daemons: they end with it, and it with who started it.

It takes a line of JSON for each request on stdin and answers with one on stdout. Ray's own way to
have several nodes on one machine (``ray.cluster_utils``) does the same in the tests' process.
"""

import json
import os
import sys
from typing import Any

from ray._private.node import Node
from ray._private.parameter import RayParams


def main() -> None:
    """Start nodes until nobody asks any more."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what Ray prints is no answer
    nodes: dict[str, Node] = {}
    for line in sys.stdin:
        asked: dict[str, Any] = json.loads(line)
        name, head = asked["node_name"], asked.pop("head")
        # A node that was killed before has left children to be waited for.
        for process in (one for all_of in _processes(nodes.pop(name, None)) for one in all_of):
            process.process.wait()
        node = Node(RayParams(**asked), head=head, shutdown_at_exit=False)
        nodes[name] = node
        pids = {kind: [one.process.pid for one in all_of] for kind, all_of in _all(node)}
        answers.write(json.dumps({"pids": pids, "address": node.gcs_address}) + "\n")
        answers.flush()
    os._exit(0)  # the daemons are told by the kernel


def _all(node: Node) -> list[tuple[str, list[Any]]]:
    return list(node.all_processes.items())


def _processes(node: Node | None) -> list[list[Any]]:
    return [] if node is None else [found for _, found in _all(node)]


if __name__ == "__main__":
    main()
