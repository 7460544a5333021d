"""Placements of gangs: on as few nodes as possible, or spread over more."""

import numpy as np

from fairlead.model.arrays import IntArray
from fairlead.model.cluster import Cluster
from fairlead.model.speeds.key import Consolidation


def placement_of(cluster: Cluster, devices: IntArray) -> Consolidation:
    """Return whether a gang on these devices holds more nodes than it needs."""
    held = len(np.unique(cluster.node_of[devices]))
    if held < 2:
        return "consolidated"
    accelerators = np.unique(cluster.accelerator_of[devices])
    needed = _least_nodes(cluster, accelerators, len(devices))
    return "spread" if held > needed else "consolidated"


def fits_one_node(cluster: Cluster, accelerator: str, gang: int) -> bool:
    """Return whether some node has enough devices of the accelerator for a gang."""
    return any(node.devices.count(accelerator) >= gang for node in cluster.nodes)


def _least_nodes(cluster: Cluster, accelerators: IntArray, gang: int) -> int:
    """Return the number of nodes that a gang on devices of these accelerators needs."""
    usable = np.isin(cluster.accelerator_of, accelerators)
    sizes = np.sort(np.bincount(cluster.node_of[usable]))[::-1]
    return int(np.searchsorted(np.cumsum(sizes), gang)) + 1
