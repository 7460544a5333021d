"""The local engine as a plug-in."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fairlead.engines.local.checkup import check_devices, check_isolation, check_job_library
from fairlead.engines.local.devices import LocalDevices
from fairlead.engines.local.engine import LocalEngine
from fairlead.engines.local.gpus import find_gpus
from fairlead.engines.plugin import OpenedEngine, Site
from fairlead.engines.shared.checkup.findings import Finding
from fairlead.files import read_cluster
from fairlead.model.cluster import Cluster, Node
from fairlead.model.errors import UsageError


@dataclass(frozen=True)
class LocalOptions:
    """Options of the local engine."""

    users: bool = False
    """run jobs as the Unix user with the name of the job's tenant; needs root"""


class LocalPlugin:
    """Runs jobs on the GPUs of this machine, or on emulated devices."""

    options = LocalOptions
    runs_here = True

    def open(self, site: Site, options: Mapping[str, Any]) -> OpenedEngine:
        """Return the engine for the GPUs of this machine, or for emulated devices."""
        users = LocalOptions(**options).users
        if users and os.geteuid() != 0:
            raise UsageError(
                "engine: local:users starts jobs as other users: expected a server that runs as"
                " root, or --engine local"
            )
        devices = LocalDevices(site.data, *_present_devices(site))
        engine = LocalEngine(
            site.data,
            devices.cluster,
            devices=devices,
            users=users,
            inherits=site.job_environment,
            processes_per_device=site.processes_per_device,
        )
        return OpenedEngine(engine, site.emulate is not None, separates_tenants=users)

    def check(self, site: Site, options: Mapping[str, Any]) -> Iterator[Finding]:
        """Yield findings about the devices, the isolation and the interpreter of jobs."""
        yield from check_devices(site.emulate)
        yield from check_isolation(site.data, users=LocalOptions(**options).users)
        yield from check_job_library(site.python)


def _present_devices(site: Site) -> tuple[Cluster, tuple[str, ...]]:
    """Return the cluster, and the names of its devices for CUDA_VISIBLE_DEVICES."""
    if site.emulate is not None:
        return read_cluster(site.emulate, "emulate"), ()
    gpus = find_gpus()
    if not gpus:
        raise UsageError("no GPUs on this machine: use --emulate v100=2,k80=4 to emulate some")
    node = Node(site.node_name or os.uname().nodename, tuple(gpu.accelerator for gpu in gpus))
    return Cluster((node,)), tuple(gpu.uuid for gpu in gpus)


PLUGIN = LocalPlugin()
