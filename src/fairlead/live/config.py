"""Configuration of a live scheduler."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from fairlead.live.job_ends.urls import AllowedUrls
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
    start_settings: str = ""
    """start-up settings of the scheduling config; a start with others overrules a live change"""
    data: Path
    environment: Environment
    emulated: SpeedTable | None = None
    """speeds of emulated accelerators"""
    learns_speeds: bool = True
    """whether the speeds that jobs report replace the believed ones; False: the emulated speeds
    are the believed ones"""
    device_chooser: str = ""
    """cluster manager that chooses the GPUs of each lease; empty: Fairlead does"""
    notified_urls: AllowedUrls = field(default_factory=AllowedUrls)
    """URLs to which jobs may have notifications sent"""
