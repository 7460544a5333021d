"""Facts about jobs that decide beside the table which pairs are made.

Speeds that packed jobs have measured overrule the table's. Pairs that exceed the memory of a
device by the memory that both declare are never made. A pair of the table has run together, so
a job that declares no memory does not prevent it.
"""

from collections.abc import Sequence

import numpy as np

from fairlead.model.arrays import FloatArray
from fairlead.model.snapshot import Snapshot
from fairlead.model.speeds.key import scoped_workload
from fairlead.model.speeds.table import SpeedTable


def pair_workloads(snap: Snapshot) -> Sequence[str]:
    """Return profiles → workload, scoped to its tenant where speeds of pairs were measured of it.

    A measured speed counts for the jobs of the tenants that measured it, beside each other.
    """
    profiles, speeds = snap.profiles, snap.speeds
    if speeds is None or not speeds.measured_pairs:
        return profiles.workload
    scoped = [
        scoped_workload(snap.tenants[tenant].id, workload, "") if workload else ""
        for tenant, workload in zip(profiles.tenant.tolist(), profiles.workload, strict=True)
    ]
    measured = speeds.measured_in_pairs
    return [
        name if name in measured else workload
        for name, workload in zip(scoped, profiles.workload, strict=True)
    ]


def memory_of_jobs(snap: Snapshot) -> FloatArray | None:
    """Return jobs → device memory that it declares, 0 for none; None if no job declares any."""
    declared = snap.profiles.memory_gib
    return None if declared is None else declared[snap.profile]


def measured_block(
    speeds: SpeedTable, accelerators: Sequence[str], names: Sequence[str], gang: int
) -> FloatArray:
    """Return classes × partners × accelerators → measured steps per second, NaN where unknown.

    ``names`` are the classes' workloads as ``pair_workloads`` names them.
    """
    column = {name: j for j, name in enumerate(accelerators)}
    classes: dict[str, list[int]] = {}
    for k, name in enumerate(names):
        classes.setdefault(name, []).append(k)
    block = np.full((len(names), len(names), len(accelerators)), np.nan)
    for key, speed in speeds.measured_pairs.items():
        own, other = classes.get(key.workload), classes.get(key.partner or "")
        if key.gang == gang and key.accelerator in column and own and other:
            block[np.ix_(own, other, [column[key.accelerator]])] = speed
    return block


def overrule(listed: FloatArray, measured: FloatArray) -> FloatArray:
    """Return the measured speeds, and the listed ones where nothing was measured."""
    return np.where(np.isnan(measured), listed, measured)
