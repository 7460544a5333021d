"""Engine plug-ins: how the server opens an engine and checks its cluster."""

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

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
    """The server as an engine needs to know it."""

    data: Path
    host: str = "127.0.0.1"
    port: int = 8642
    emulate: str | None = None
    """devices of this machine to emulate, as ``--emulate`` gives them"""
    engine: str = "local"
    """the engine with its options, as ``--engine`` gives them"""
    python: str = sys.executable
    """the interpreter that jobs use"""


@dataclass(frozen=True, slots=True)
class OpenedEngine:
    """An engine ready for use."""

    engine: Engine
    emulated: bool
    """steps take as long as the speeds table says, since the devices are not real"""


class EnginePlugin(Protocol):
    """The object that an entry point of ``fairlead.engines`` names."""

    options: type
    """dataclass whose fields, apart from ``data``, are the engine's options"""
    runs_here: bool
    """members of jobs run on the server's own machine"""

    def open(self, site: Site, options: Mapping[str, Any]) -> OpenedEngine:
        """Return the engine for a server."""
        ...

    def check(self, site: Site, options: Mapping[str, Any]) -> Iterator[Finding]:
        """Yield what ``fairlead doctor`` finds out about the engine's devices and nodes."""
        ...


def engine_plugin(spec: str) -> tuple[EnginePlugin, dict[str, object]]:
    """Return the plug-in that ``name[:option[,option=value…]]`` names, and the options given."""
    plugin, text = load("engines", spec)
    return plugin, parse_options(spec, plugin.options, text, given=("data",))


def refuse_emulated_devices(site: Site) -> None:
    """Raise UsageError if ``--emulate`` is given to an engine that has nodes of its own."""
    if site.emulate is not None:
        raise UsageError(
            "--emulate: makes devices of this machine: to emulate the speeds of a cluster's"
            " devices give --engine NAME:emulate"
        )
