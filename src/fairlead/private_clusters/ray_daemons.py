"""Parent process of a private Ray's daemons, which exit with it; it exits with its own parent.

Each request is a line of JSON on stdin, each answer one on stdout. ``ray.cluster_utils``, Ray's
own tool for several nodes on one machine, does the same inside the tests' process.
"""

import json
import os
import sys
from typing import Any

from ray._private.node import Node
from ray._private.parameter import RayParams


def main() -> None:
    """Start nodes on request until stdin is closed."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # Ray's own output must not mix with the answers
    nodes: dict[str, Node] = {}
    for line in sys.stdin:
        request: dict[str, Any] = json.loads(line)
        name, head = request["node_name"], request.pop("head")
        # A node that was killed before has left zombies.
        if name in nodes:
            for daemons in nodes.pop(name).all_processes.values():
                for daemon in daemons:
                    daemon.process.wait()
        answers.write(json.dumps(_start(nodes, name, head=head, parameters=request)) + "\n")
        answers.flush()
    os._exit(0)  # the kernel signals the daemons


def _start(
    nodes: dict[str, Node], name: str, *, head: bool, parameters: dict[str, Any]
) -> dict[str, Any]:
    """Start a node; return its process IDs, or the reason why it did not start."""
    try:
        node = Node(RayParams(**parameters), head=head, shutdown_at_exit=False)
    except Exception as error:  # the other nodes' daemons must not exit for it
        return {"error": f"{type(error).__name__}: {error}"}
    nodes[name] = node
    pids = {
        program: [daemon.process.pid for daemon in daemons]
        for program, daemons in node.all_processes.items()
    }
    return {"pids": pids}


if __name__ == "__main__":
    main()
