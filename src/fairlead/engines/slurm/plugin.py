"""The Slurm engine as a plug-in."""

from collections.abc import Iterator, Mapping
from typing import Any

from fairlead.engines.plugin import (
    EngineTraits,
    OpenedEngine,
    Site,
    refuse_emulated_devices,
)
from fairlead.engines.shared.checkup.findings import Finding
from fairlead.engines.slurm.checkup import check_slurm
from fairlead.engines.slurm.engine import SlurmEngine


class SlurmPlugin:
    """Runs jobs on the nodes of a Slurm cluster."""

    options = SlurmEngine
    runs_here = False

    def traits(self, site: Site, options: Mapping[str, Any]) -> EngineTraits:
        """Return the traits; raise UsageError for devices of this machine to emulate."""
        refuse_emulated_devices(site)
        return EngineTraits(bool(options.get("emulate")), bool(options.get("users")))

    def open(self, site: Site, options: Mapping[str, Any]) -> OpenedEngine:
        """Return the engine for the cluster in the options."""
        traits = self.traits(site, options)
        engine = SlurmEngine(data=site.data, inherits=site.job_environment, **options)
        return OpenedEngine(
            engine, traits.emulated, traits.separates_tenants, device_chooser="Slurm"
        )

    def check(self, site: Site, options: Mapping[str, Any]) -> Iterator[Finding]:
        """Yield findings about Slurm, its devices and its nodes."""
        return check_slurm(site, options)


PLUGIN = SlurmPlugin()
