"""Engine plug-ins: open an engine for the server and check its cluster."""

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from fairlead.engines.base import Engine
from fairlead.engines.shared.checkup.findings import Finding
from fairlead.model.errors import UsageError
from fairlead.registry import load, parse_options

LOOPBACK = ("127.0.0.1", "::1", "localhost")
"""hosts that no other machine can reach"""
ANY_ADDRESS = ("0.0.0.0", "::")
"""hosts that listen on every address of the machine"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """The server's settings that engines use."""

    data: Path
    host: str = "127.0.0.1"
    port: int = 8642
    emulate: str | None = None
    """value of ``--emulate``: devices of this machine to emulate"""
    node_name: str | None = None
    """value of ``--node-name``: name of this machine as a node"""
    engine: str = "local"
    """value of ``--engine``: name and options"""
    python: str = sys.executable
    """interpreter of jobs"""
    job_environment: tuple[str, ...] = ()
    """variables that jobs inherit from the server besides the usual ones; NAME or PREFIX_*"""
    processes_per_device: int | None = None
    """limit for the processes of a job, for each of its devices"""
    offload_gib: float = 0.0
    """host memory of a node in which preempted processes may stay without their devices"""


@dataclass(frozen=True, slots=True)
class OpenedEngine:
    """An engine ready for use."""

    engine: Engine
    emulated: bool
    """devices are not real: steps take as long as the speeds table says"""
    separates_tenants: bool = False
    """a job can neither read nor change files of the server or of other tenants"""
    device_chooser: str = ""
    """cluster manager that chooses the GPUs of each lease; empty: Fairlead does"""


@dataclass(frozen=True, slots=True)
class EngineTraits:
    """The traits of an engine that its settings alone decide."""

    emulated: bool
    """devices are not real: steps take as long as the speeds table says"""
    separates_tenants: bool = False
    """a job can neither read nor change files of the server or of other tenants"""


class EnginePlugin(Protocol):
    """The object that an entry point of ``fairlead.engines`` names."""

    options: type
    """dataclass whose fields, apart from ``data`` and ``inherits``, are the engine's options"""
    runs_here: bool
    """members of jobs run on the server's own machine"""

    def open(self, site: Site, options: Mapping[str, Any]) -> OpenedEngine:
        """Return the engine for a server."""
        ...

    def check(self, site: Site, options: Mapping[str, Any]) -> Iterator[Finding]:
        """Yield the findings of ``fairlead doctor`` about the engine's devices and nodes."""
        ...


@runtime_checkable
class ChecksSettings(Protocol):
    """A plug-in that checks its settings without opening the engine."""

    def traits(self, site: Site, options: Mapping[str, Any]) -> EngineTraits:
        """Return the traits; raise UsageError for settings with which no machine can open it."""
        ...


def engine_plugin(spec: str) -> tuple[EnginePlugin, dict[str, object]]:
    """Return the plug-in that ``name[:option[,option=value…]]`` names, and its options."""
    plugin, text = load("engines", spec)
    return plugin, parse_options(spec, plugin.options, text, preset=("data", "inherits"))


def refuse_emulated_devices(site: Site) -> None:
    """Raise UsageError if ``--emulate`` is used with an engine that has real nodes."""
    if site.emulate is not None:
        raise UsageError(
            "--emulate: emulates devices of this machine only:"
            " use --engine NAME:emulate to emulate the speeds of a cluster's devices"
        )
