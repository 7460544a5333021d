"""Speeds of elastic gangs, whose sizes a speed table need not list."""

from collections.abc import Sequence

from fairlead.model.speeds.key import Consolidation, plain_workload
from fairlead.model.speeds.table import SpeedTable


def speed_of_size(
    speeds: SpeedTable,
    workload: str,
    accelerators: Sequence[str],
    gang: int,
    placement: Consolidation = "consolidated",
) -> float:
    """Return the steps per second of a job on these accelerators, one per device.

    A size that the table lacks runs at the speed of the declared gang, in proportion to the size.
    """
    speed, size = speeds.speed(workload, accelerators, placement=placement), len(accelerators)
    if speed > 0 or size in (gang, *speeds.gangs.get(plain_workload(workload), ())):
        return speed
    declared = (speeds.speed(workload, (name,) * gang) for name in dict.fromkeys(accelerators))
    return min(declared) * size / gang
