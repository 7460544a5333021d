"""From a lease to what the engine must know to run it."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fairlead.engines.base import Order
from fairlead.live.job_spec import JobSpec
from fairlead.model.cluster import Cluster
from fairlead.model.lease import Placement

Environment = Callable[[int, JobSpec, tuple[str, ...]], dict[str, str]]
"""(lease, job, accelerators) → what its processes find in their environment"""


@dataclass(frozen=True)
class LaunchOrderBuilder:
    """Writes orders for one data directory."""

    data: Path
    environment: Environment

    def write(self, lease: int, spec: JobSpec, placement: Placement, cluster: Cluster) -> Order:
        """Return the order for a job's lease on its devices of a cluster."""
        home = self.home(spec.id)
        kinds = tuple(
            cluster.accelerators[cluster.accelerator_of[device]] for device in placement.devices
        )
        return Order(
            lease=lease,
            job=spec.id,
            tenant=spec.tenant,
            command=spec.command,
            directory=spec.directory,
            environment={**spec.environment, **self.environment(lease, spec, kinds)},
            devices=tuple(cluster.addresses[device] for device in placement.devices),
            accelerators=kinds,
            checkpoint_dir=str(home / "checkpoint"),
            log_dir=str(home / "logs"),
            total_steps=spec.steps,
            grace_s=spec.grace_s,
            memory_gib=spec.host_memory_gib,
            time_limit_s=spec.time_limit_s,
            progress_pattern=spec.progress_pattern,
        )

    def home(self, job_id: str) -> Path:
        """Return a job's own directory."""
        return self.data / "jobs" / job_id
