"""The rehearsal engine as a plug-in."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fairlead.engines.plugin import OpenedEngine, Site
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

    def open(self, site: Site, options: Mapping[str, Any]) -> OpenedEngine:
        """Return the engine for the rehearsed devices."""
        del options
        if site.emulate is None:
            raise UsageError(
                "--emulate: missing: a rehearsal needs devices, such as v100=2000/4,k80=2000/4"
            )
        engine = RehearsalEngine(site.data, read_cluster(site.emulate))
        return OpenedEngine(engine, True, separates_tenants=True)  # no command runs

    def check(self, site: Site, options: Mapping[str, Any]) -> Iterator[Finding]:
        """Yield the rehearsed devices."""
        del options
        yield Finding("devices", "ok", f"{site.emulate or 'none'} rehearsed")


PLUGIN = RehearsalPlugin()
