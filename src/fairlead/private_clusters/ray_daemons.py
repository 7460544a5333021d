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
        node = Node(RayParams(**request), head=head, shutdown_at_exit=False)
        nodes[name] = node
        pids = {
            program: [daemon.process.pid for daemon in daemons]
            for program, daemons in node.all_processes.items()
        }
        answers.write(json.dumps({"pids": pids, "address": node.gcs_address}) + "\n")
        answers.flush()
    os._exit(0)  # the kernel signals the daemons


if __name__ == "__main__":
    main()
