"""Configuration of a live scheduler."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fairlead.live.leases.orders import Environment
from fairlead.live.scheduling_config import SchedulingConfig
from fairlead.model.cluster import Cluster
from fairlead.model.speeds.table import SpeedTable


@dataclass(frozen=True, kw_only=True)
class LiveConfig:
    """The cluster, the scheduling config and the data directory of a live scheduler."""

    cluster: Cluster
    scheduling: SchedulingConfig
    load_scheduling: Callable[[str], SchedulingConfig]
    """builds a scheduling config from its persisted text"""
    data: Path
    environment: Environment
    emulated: SpeedTable | None = None
    """speeds of emulated accelerators"""
