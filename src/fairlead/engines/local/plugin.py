"""The local engine as a plug-in."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fairlead.engines.local.checkup import check_devices, check_job_library
from fairlead.engines.local.engine import LocalEngine
from fairlead.engines.local.gpus import find_gpus
from fairlead.engines.plugin import OpenedEngine, Site
from fairlead.engines.shared.checkup.findings import Finding
from fairlead.files import read_cluster
from fairlead.model.cluster import Cluster, Node
from fairlead.model.errors import UsageError


@dataclass(frozen=True)
class LocalOptions:
    """The local engine has no options."""


class LocalPlugin:
    """Runs jobs on the GPUs of this machine, or on emulated devices."""

    options = LocalOptions
    runs_here = True

    def open(self, site: Site, options: Mapping[str, Any]) -> OpenedEngine:
        """Return the engine for the GPUs of this machine, or for emulated devices."""
        del options
        if site.emulate is not None:
            return OpenedEngine(LocalEngine(site.data, read_cluster(site.emulate)), True)
        gpus = find_gpus()
        if not gpus:
            raise UsageError("no GPUs on this machine: use --emulate v100=2,k80=4 to emulate some")
        node = Node(os.uname().nodename, tuple(gpu.accelerator for gpu in gpus))
        visible = tuple(gpu.uuid for gpu in gpus)
        return OpenedEngine(LocalEngine(site.data, Cluster((node,)), visible), False)

    def check(self, site: Site, options: Mapping[str, Any]) -> Iterator[Finding]:
        """Yield findings about the devices and the interpreter of jobs."""
        del options
        yield from check_devices(site.emulate)
        yield from check_job_library(site.python)


PLUGIN = LocalPlugin()
