"""Physics measured in the Gandiva paper (OSDI 2018, §3, §6.1; P40 and P100 servers of four).

The values are those printed in the paper, except for a few assumptions that
docs/design/physics.md lists.
"""

from dataclasses import replace
from functools import cache

from fairlead.files.bundled import gandiva_packing
from fairlead.sim.physics.effects import (
    OTHER_WORKLOADS,
    ContentionProfile,
    Locality,
    Physics,
    Topology,
    TransitionCosts,
    WorkloadPhysics,
)

_IMAGES = TransitionCosts(resume_s=0.1, migrate_s=1.0)
"""§6.1: image models suspend and resume within 100 ms; most migrate within a second"""
_LANGUAGE = TransitionCosts(resume_s=1.0, migrate_s=2.0)
"""§4.1: large language models take up to a second"""
_SPEECH = TransitionCosts(resume_s=1.0, migrate_s=3.5)
"""§6.1: the largest checkpoint, 1.4 GB, migrates in about 3.5 s"""

_WORKLOAD_PHYSICS = {
    OTHER_WORKLOADS: WorkloadPhysics(costs=_IMAGES),
    "VGG16": WorkloadPhysics(
        costs=_IMAGES, locality=Locality(switches=0.8, sockets=0.6, nodes=0.5)
    ),
    "ResNet-50": WorkloadPhysics(
        costs=_IMAGES,
        locality=Locality(nodes=0.9),
        network=ContentionProfile(sensitivity=0.47),
        switch=ContentionProfile(load=0.0),
    ),
    "InceptionV3": WorkloadPhysics(
        costs=_IMAGES, locality=Locality(nodes=0.8), network=ContentionProfile(sensitivity=0.30)
    ),
    "DeepSpeech": WorkloadPhysics(costs=_SPEECH, network=ContentionProfile(sensitivity=0.05)),
    "LanguageModel": WorkloadPhysics(costs=_LANGUAGE, switch=ContentionProfile(sensitivity=0.19)),
    "GNMT": WorkloadPhysics(costs=_LANGUAGE, switch=ContentionProfile(sensitivity=0.10)),
}


@cache
def gandiva_physics() -> Physics:
    """Return physics with all effects, and the utilization and packing gains of Table 1."""
    by_workload = dict(_WORKLOAD_PHYSICS)
    for workload, packing in gandiva_packing().items():
        known = by_workload.get(workload, by_workload[OTHER_WORKLOADS])
        by_workload[workload] = replace(
            known, packed=packing.ratio, utilization=packing.utilization
        )
    return Physics(by_workload=by_workload, topology=Topology(per_switch=2, per_socket=2))
