"""The Ray engine as a plug-in."""

from collections.abc import Iterator, Mapping
from typing import Any

from fairlead.engines.plugin import (
    EngineTraits,
    OpenedEngine,
    Site,
    refuse_emulated_devices,
)
from fairlead.engines.ray.checkup import check_ray
from fairlead.engines.ray.engine import RayEngine
from fairlead.engines.shared.checkup.findings import Finding


class RayPlugin:
    """Runs jobs on the nodes of a Ray cluster."""

    options = RayEngine
    runs_here = False

    def traits(self, site: Site, options: Mapping[str, Any]) -> EngineTraits:
        """Return the traits; raise UsageError for devices of this machine to emulate."""
        refuse_emulated_devices(site)
        return EngineTraits(bool(options.get("emulate")))

    def open(self, site: Site, options: Mapping[str, Any]) -> OpenedEngine:
        """Return the engine for the cluster in the options."""
        traits = self.traits(site, options)
        engine = RayEngine(data=site.data, **options)
        return OpenedEngine(engine, traits.emulated, device_chooser="Ray")

    def check(self, site: Site, options: Mapping[str, Any]) -> Iterator[Finding]:
        """Yield findings about Ray, its devices and its nodes."""
        return check_ray(site, options)


PLUGIN = RayPlugin()
