"""The Slurm engine as a plug-in."""

from collections.abc import Iterator, Mapping
from typing import Any

from fairlead.engines.plugin import OpenedEngine, Site, refuse_emulated_devices
from fairlead.engines.shared.checkup.findings import Finding
from fairlead.engines.slurm.checkup import check_slurm
from fairlead.engines.slurm.engine import SlurmEngine


class SlurmPlugin:
    """Runs jobs on the nodes of a Slurm cluster."""

    options = SlurmEngine
    runs_here = False

    def open(self, site: Site, options: Mapping[str, Any]) -> OpenedEngine:
        """Return the engine for the cluster in the options."""
        refuse_emulated_devices(site)
        engine = SlurmEngine(data=site.data, inherits=site.job_environment, **options)
        return OpenedEngine(
            engine, engine.emulate, separates_tenants=engine.users, device_chooser="Slurm"
        )

    def check(self, site: Site, options: Mapping[str, Any]) -> Iterator[Finding]:
        """Yield findings about Slurm, its devices and its nodes."""
        return check_slurm(site, options)


PLUGIN = SlurmPlugin()
