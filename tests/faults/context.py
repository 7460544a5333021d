"""Interface of the simulated world to faults, operator actions and the liveness checker."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Protocol

from tests.faults.machine.disk import Disk
from tests.faults.machine.network import Network
from tests.faults.nodes import NodeContext, SimulatedNodes
from tests.faults.scenario import Scenario


class FaultContext(NodeContext, Protocol):
    """Parts of the simulated world that faults and operator actions use."""

    plan: Scenario
    home: Path
    disk: Disk
    network: Network
    nodes: SimulatedNodes
    wall_offset: float
    background: set[asyncio.Task[None]]
    dies_at_begin: float | None
    dies_at_point: int | None
    dies_at_merge: int | None
    refuse_next_config: bool

    def client(self, call: Callable[..., Awaitable[None]], *arguments: Any) -> None:
        """Call the server; retry later while it is down."""

    def kill_server(self, down_s: float) -> None:
        """Kill the server; another one starts after a delay."""

    def start_another(self) -> None:
        """Try to start another server beside the running one."""

    def touch_leaving(self) -> None:
        """Mark leases that a server crash disturbs: starting or leaving ones."""
