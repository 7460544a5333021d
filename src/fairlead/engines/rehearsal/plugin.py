"""The rehearsal engine as a plug-in."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fairlead.engines.plugin import EngineTraits, OpenedEngine, Site
from fairlead.engines.rehearsal.engine import RehearsalEngine
from fairlead.engines.shared.checkup.findings import Finding
from fairlead.files import read_cluster
from fairlead.model.errors import UsageError


@dataclass(frozen=True)
class RehearsalOptions:
    """The rehearsal engine has no options."""


class RehearsalPlugin:
    """Rehearses a cluster: real server, simulated nodes and members."""

    options = RehearsalOptions
    runs_here = True

    def traits(self, site: Site, options: Mapping[str, Any]) -> EngineTraits:
        """Return the traits; raise UsageError without devices to rehearse."""
        del options
        _require_devices(site)
        return _TRAITS

    def open(self, site: Site, options: Mapping[str, Any]) -> OpenedEngine:
        """Return the engine for the rehearsed devices."""
        del options
        engine = RehearsalEngine(site.data, read_cluster(_require_devices(site)))
        return OpenedEngine(engine, _TRAITS.emulated, _TRAITS.separates_tenants)

    def check(self, site: Site, options: Mapping[str, Any]) -> Iterator[Finding]:
        """Yield the rehearsed devices."""
        del options
        yield Finding("devices", "ok", f"{site.emulate or 'none'} rehearsed")


def _require_devices(site: Site) -> str:
    if site.emulate is None:
        raise UsageError(
            "--emulate: missing: a rehearsal needs devices, such as v100=2000/4,k80=2000/4"
        )
    return site.emulate


_TRAITS = EngineTraits(emulated=True, separates_tenants=True)
"""no command runs, so that no job reads files"""
PLUGIN = RehearsalPlugin()
