"""The local engine as a plug-in."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from fairlead.engines.local.checkup import (
    check_devices,
    check_isolation,
    check_job_library,
    check_mps,
)
from fairlead.engines.local.devices import LocalDevices
from fairlead.engines.local.engine import LocalEngine
from fairlead.engines.local.gpus.inventory import find_gpus
from fairlead.engines.local.gpus.monitor import DeviceReader, GpuMonitor
from fairlead.engines.local.mps import MpsDaemon
from fairlead.engines.plugin import EngineTraits, OpenedEngine, Site
from fairlead.engines.shared.checkup.findings import Finding
from fairlead.engines.shared.checkup.tenant_access import check_installation
from fairlead.files import read_cluster
from fairlead.model.cluster import Cluster, Node
from fairlead.model.errors import UsageError


@dataclass(frozen=True)
class LocalOptions:
    """Options of the local engine."""

    users: bool = False
    """run jobs as the Unix user with the name of the job's tenant; needs root"""
    mps: bool = False
    """let packed jobs run on a GPU at the same time, by NVIDIA's Multi-Process Service"""


class LocalPlugin:
    """Runs jobs on the GPUs of this machine, or on emulated devices."""

    options = LocalOptions
    runs_here = True

    def traits(self, site: Site, options: Mapping[str, Any]) -> EngineTraits:
        """Return the traits; raise UsageError for MPS where it would be of no use."""
        chosen = LocalOptions(**options)
        if chosen.mps:
            _require_use_of_mps(site, chosen)
        return EngineTraits(site.emulate is not None, chosen.users)

    def open(self, site: Site, options: Mapping[str, Any]) -> OpenedEngine:
        """Return the engine for the GPUs of this machine, or for emulated devices."""
        traits, chosen = self.traits(site, options), LocalOptions(**options)
        mps = MpsDaemon(site.data) if chosen.mps else None
        users = chosen.users
        if users and os.geteuid() != 0:
            raise UsageError(
                "engine: local:users starts jobs as other users: expected a server that runs as"
                " root, or --engine local"
            )
        devices, monitor = find_devices(site)
        engine = LocalEngine(
            site.data,
            devices.cluster,
            devices=devices,
            monitor=monitor,
            find_devices=None if site.emulate is not None else partial(find_devices, site),
            users=users,
            inherits=site.job_environment,
            processes_per_device=site.processes_per_device,
            offload_gib=site.offload_gib,
            mps=mps,
        )
        return OpenedEngine(engine, traits.emulated, traits.separates_tenants)

    def check(self, site: Site, options: Mapping[str, Any]) -> Iterator[Finding]:
        """Yield findings about the devices, the isolation and the interpreter of jobs."""
        yield from check_devices(site.emulate)
        chosen = LocalOptions(**options)
        yield from check_mps(site.data, wanted=chosen.mps)
        yield from check_isolation(site.data, users=chosen.users)
        if chosen.users:
            yield from check_installation()
        yield from check_job_library(site.python)


def _require_use_of_mps(site: Site, options: LocalOptions) -> None:
    """Raise UsageError where the MPS daemon that the options ask for would be of no use."""
    if options.users:
        raise UsageError(
            "engine: local:users,mps: MPS serves the processes of one Unix user at a time:"
            " expected one of the two options"
        )
    if site.emulate is not None:
        raise UsageError("engine: local:mps: the devices are emulated: expected GPUs")


def find_devices(site: Site) -> tuple[LocalDevices, GpuMonitor | None]:
    """Return the devices of this machine, or the emulated ones, and the monitor of GPUs."""
    cluster, uuids, reader = _present_devices(site)
    devices = LocalDevices(site.data, cluster, uuids)
    return devices, None if reader is None else _monitor(reader, devices)


def _present_devices(site: Site) -> tuple[Cluster, tuple[str, ...], DeviceReader | None]:
    """Return the cluster, its devices' names for CUDA_VISIBLE_DEVICES, and their reader."""
    if site.emulate is not None:
        return read_cluster(site.emulate, "emulate"), (), None
    gpus, reader = find_gpus()
    if not gpus:
        raise UsageError("no GPUs on this machine: use --emulate v100=2,k80=4 to emulate some")
    node = Node(site.node_name or os.uname().nodename, tuple(gpu.accelerator for gpu in gpus))
    return Cluster((node,)), tuple(gpu.uuid for gpu in gpus), reader


def _monitor(reader: DeviceReader, devices: LocalDevices) -> GpuMonitor:
    """Return a monitor of the present devices."""
    return GpuMonitor(
        reader,
        {
            device.uuid: (node, number)
            for node, listed in devices.nodes.items()
            for number, device in enumerate(listed)
            if device.present
        },
    )


PLUGIN = LocalPlugin()
