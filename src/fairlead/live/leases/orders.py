"""Builds launch orders: all that an engine needs to start one lease."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fairlead.code_snapshot.location import code_dir, snapshot_path
from fairlead.engines.base import LaunchOrder
from fairlead.job.copies.part import CopyPart
from fairlead.live.job_spec import JobSpec
from fairlead.model.cluster import Cluster
from fairlead.model.lease import Placement
from fairlead.model.speeds.key import Consolidation
from fairlead.model.speeds.placement import placement_of
from fairlead.model.submission.secrets import parse_secrets

Environment = Callable[[int, JobSpec, tuple[str, ...], Consolidation], dict[str, str]]
"""(lease, job, accelerators, placement) → environment variables of its processes"""
_LEAST_TIME_S = 1e-3
"""time limit of a lease whose job has no time left"""


@dataclass(frozen=True)
class LaunchOrderBuilder:
    """Builds the orders of one data directory."""

    data: Path
    environment: Environment
    held_s: Callable[[str], float] = lambda _: 0.0
    """job → seconds for which it has held devices, under its ended leases"""

    def build(
        self,
        lease: int,
        spec: JobSpec,
        placement: Placement,
        cluster: Cluster,
        shares: Mapping[int, float] | None = None,
    ) -> LaunchOrder:
        """Return the order for a job's lease on its devices of a cluster.

        ``shares``: copy → share of the steps, of a job that has copies.
        """
        accelerators = tuple(
            cluster.accelerators[cluster.accelerator_of[device]] for device in placement.devices
        )
        placed = placement_of(cluster, np.array(placement.devices, dtype=np.int64))
        return LaunchOrder(
            lease=lease,
            job=spec.id,
            tenant=spec.tenant,
            command=spec.command,
            directory=self._directory(spec),
            code_snapshot=self._code_snapshot(spec),
            container=spec.container,
            environment={
                **spec.environment,
                **self.environment(lease, spec, accelerators, placed),
                **self._copy_environment(spec.id, placement, shares or {}),
            },
            secrets=parse_secrets(spec.secrets),
            devices=tuple(cluster.addresses[device] for device in placement.devices),
            accelerators=accelerators,
            checkpoint_dir=os.path.join(self.copies_dir(spec.id), str(lease))
            if placement.copy
            else self.checkpoint_dir(spec.id),
            log_dir=str(self.log_dir(spec.id)),
            total_steps=spec.steps,
            grace_s=spec.grace_s,
            memory_gib=spec.host_memory_gib,
            time_limit_s=self._time_left_s(spec),
            progress_pattern=spec.progress_pattern,
            may_stay=spec.switch == "auto",
            forks=spec.may_fork,
        )

    def job_dir(self, job_id: str) -> Path:
        """Return the directory of a job's checkpoints, logs and code."""
        return self.data / "jobs" / job_id

    def log_dir(self, job_id: str) -> Path:
        """Return the directory of the logs of a job's leases."""
        return self.job_dir(job_id) / "logs"

    def checkpoint_dir(self, job_id: str) -> str:
        """Return the directory of a job's checkpoints."""
        return str(self.job_dir(job_id) / "checkpoint")

    def copies_dir(self, job_id: str) -> str:
        """Return the directory of the checkpoints of a job's copies, by lease."""
        return str(self.job_dir(job_id) / "copies")

    def _copy_environment(
        self, job_id: str, placement: Placement, shares: Mapping[int, float]
    ) -> dict[str, str]:
        if not placement.copy:
            return {}
        low = sum(share for copy, share in shares.items() if copy < placement.copy)
        is_last = placement.copy == max(shares)
        high = 1.0 if is_last else low + shares[placement.copy]
        base, steps = self.checkpoint_dir(job_id), int(placement.max_steps)
        return CopyPart(placement.copy, steps, (low, high), base).environment()

    def _directory(self, spec: JobSpec) -> str:
        return str(code_dir(self.job_dir(spec.id))) if spec.code_snapshot else spec.directory

    def _code_snapshot(self, spec: JobSpec) -> str:
        if not spec.code_snapshot:
            return ""
        return str(snapshot_path(self.data, spec.tenant, spec.code_snapshot))

    def _time_left_s(self, spec: JobSpec) -> float | None:
        if spec.time_limit_s is None:
            return None
        return max(spec.time_limit_s - self.held_s(spec.id), _LEAST_TIME_S)
