"""OEF's sensitivity to profiling errors (§6.4.2), for several policies.

The deviation is the gap between the total normalised throughput that the reported speeds promise
and the one that the true speeds give under the same shares. The loss is the gap between that one
and the throughput under the shares of exact profiles.

The paper leaves open how errors are drawn. Two readings, both uniform within the bound: one error
for each tenant, whose jobs all have the same profile, or one for each of its speed-ups. Both leave
the slowest accelerator alone: a profile is a vector of speed-ups over it, so its own entry is 1.

Two clusters: the paper's three GPU types with the 20 tenants of its evaluation of throughput
(§6.3.1), whose speed-ups lie evenly between the two that it prints, and four types with one tenant
for each workload of Gandiva_fair's table.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import numpy as np
from benchmarks.estimate.completion import Figure

from fairlead.files import parse_cluster, read_speeds
from fairlead.model.arrays import FloatArray
from fairlead.model.instance import Instance, InstanceJob
from fairlead.model.snapshot import snapshot_of
from fairlead.model.tenants.tenant import Tenant
from fairlead.policies.rules.priority import create_policy

POLICIES = ("oef", "oef-cooperative", "tenant-max-min")
ERRORS = (0.1, 0.2)
_CLUSTER = "k80=8,p40=8,p100=8,v100=8"
_PAPERS_CLUSTER = "rtx-3070=8,rtx-3080=8,rtx-3090=8"
_PAPERS_SPEED_UPS = tuple(np.linspace(1.39, 2.15, 20).round(2).tolist())
"""of the tenants on an RTX 3090; Fig. 1 names the first and the last"""
_READINGS = ("each tenant", "each speed-up")
"""units to which one error applies"""
_JOBS = 8
"""jobs of each tenant: enough to use all devices"""


def sensitivity(seeds: int) -> Iterator[Figure]:
    """Yield the mean deviations of the policies."""
    for cluster, true in (("OEF's", _papers_instance()), ("Gandiva_fair's", _instance())):
        for reading, policy, error in product(_READINGS, POLICIES, ERRORS):
            gaps = [_gaps(policy, true, error, reading, seed) for seed in range(seeds)]
            deviation, loss = np.mean(gaps, axis=0).tolist()
            case = f"{cluster} GPUs, errors up to {error:.0%} of {reading}"
            yield Figure(f"{case}, deviation", policy, deviation)
            yield Figure(f"{case}, throughput lost", policy, loss)


def _papers_instance() -> Instance:
    """Return the tenants on the paper's cluster; an RTX 3080 is half as far from a 3070."""
    cluster = parse_cluster(_PAPERS_CLUSTER)
    jobs = tuple(
        InstanceJob(
            id=f"{fastest} {number}",
            speeds=dict(zip(cluster.accelerators, (1.0, fastest**0.5, fastest), strict=True)),
            tenant=str(fastest),
        )
        for fastest in _PAPERS_SPEED_UPS
        for number in range(_JOBS)
    )
    return Instance(cluster, jobs, tuple(Tenant(str(fastest)) for fastest in _PAPERS_SPEED_UPS))


def _instance() -> Instance:
    table, cluster = read_speeds("gandiva-fair"), parse_cluster(_CLUSTER)
    jobs = tuple(
        InstanceJob(
            id=f"{workload} {number}",
            speeds={name: table.speed(workload, [name]) for name in cluster.accelerators},
            workload=workload,
            tenant=workload,
        )
        for workload in table.workloads
        for number in range(_JOBS)
    )
    return Instance(cluster, jobs, tuple(Tenant(workload) for workload in table.workloads))


def _gaps(
    policy: str, true: Instance, error: float, reading: str, seed: int
) -> tuple[float, float]:
    """Return deviation and loss of throughput under one draw of errors, as fractions."""
    rng, columns = np.random.default_rng(seed), len(true.cluster.accelerators)
    drawn = columns if reading == "each speed-up" else 1
    factor = {
        tenant.id: np.ones(columns) + rng.uniform(-error, error, drawn) for tenant in true.tenants
    }
    for of in factor.values():
        of[0] = 1.0  # the slowest accelerator, the first of both clusters
    reported = replace(
        true,
        jobs=tuple(
            replace(
                job,
                speeds=dict(
                    zip(job.speeds, (_speeds(job) * factor[job.tenant]).tolist(), strict=True)
                ),
            )
            for job in true.jobs
        ),
    )
    share, exact = (
        create_policy(policy).allocate(snapshot_of(instance)).share
        for instance in (reported, true)
    )
    promised, received = _throughput(share, reported), _throughput(share, true)
    return abs(promised - received) / promised, 1.0 - received / _throughput(exact, true)


def _throughput(share: FloatArray, instance: Instance) -> float:
    """Return the tenants' total speed-ups over the slowest accelerator, by devices held."""
    rows = {job.tenant: _speeds(job) / _speeds(job)[0] for job in instance.jobs}
    speed_up = np.array([rows[tenant.id] for tenant in instance.tenants])
    return float((share * speed_up).sum())


def _speeds(job: InstanceJob) -> FloatArray:
    return np.array(list(job.speeds.values()))
