"""Keys of measured speeds."""

from typing import Literal, NamedTuple

Consolidation = Literal["consolidated", "spread"]
"""placement of a gang: on as few nodes as possible, or over more nodes"""


class SpeedKey(NamedTuple):
    """The subject of a measured speed: one gang of one workload on one accelerator.

    ``partner`` is the workload packed onto the same devices, None for a job that runs alone.
    """

    workload: str
    gang: int
    accelerator: str
    placement: Consolidation = "consolidated"
    partner: str | None = None
