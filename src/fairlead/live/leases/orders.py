"""Builds launch orders: all that an engine needs to start one lease."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fairlead.engines.base import LaunchOrder
from fairlead.live.job_spec import JobSpec
from fairlead.model.cluster import Cluster
from fairlead.model.lease import Placement
from fairlead.model.submission.secrets import parse_secrets

Environment = Callable[[int, JobSpec, tuple[str, ...]], dict[str, str]]
"""(lease, job, accelerators) → environment variables of its processes"""


@dataclass(frozen=True)
class LaunchOrderBuilder:
    """Builds the orders of one data directory."""

    data: Path
    environment: Environment

    def build(
        self, lease: int, spec: JobSpec, placement: Placement, cluster: Cluster
    ) -> LaunchOrder:
        """Return the order for a job's lease on its devices of a cluster."""
        job_dir = self.job_dir(spec.id)
        accelerators = tuple(
            cluster.accelerators[cluster.accelerator_of[device]] for device in placement.devices
        )
        return LaunchOrder(
            lease=lease,
            job=spec.id,
            tenant=spec.tenant,
            command=spec.command,
            directory=spec.directory,
            environment={**spec.environment, **self.environment(lease, spec, accelerators)},
            secrets=parse_secrets(spec.secrets),
            devices=tuple(cluster.addresses[device] for device in placement.devices),
            accelerators=accelerators,
            checkpoint_dir=str(job_dir / "checkpoint"),
            log_dir=str(job_dir / "logs"),
            total_steps=spec.steps,
            grace_s=spec.grace_s,
            memory_gib=spec.host_memory_gib,
            time_limit_s=spec.time_limit_s,
            progress_pattern=spec.progress_pattern,
        )

    def job_dir(self, job_id: str) -> Path:
        """Return the directory of a job's checkpoints and logs."""
        return self.data / "jobs" / job_id
