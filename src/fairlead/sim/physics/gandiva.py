"""The physics that Gandiva's paper measured (OSDI 2018, §3, §6.1; P40 and P100 servers of four).

Figures are those printed in the text; docs/design/physics.md tells them from the few that had to
be assumed.
"""

from dataclasses import replace
from functools import cache

from fairlead.files.bundled import gandiva_packing
from fairlead.sim.physics.effects import (
    OTHERS,
    Contention,
    Costs,
    Locality,
    Physics,
    Topology,
    WorkloadPhysics,
)

_IMAGES = Costs(resume_s=0.1, migrate_s=1.0)
"""§6.1: image models are suspended and resumed within 100 ms, most migrate within a second"""
_LANGUAGE = Costs(resume_s=1.0, migrate_s=2.0)
"""§4.1: large language models take up to a second"""
_SPEECH = Costs(resume_s=1.0, migrate_s=3.5)
"""§6.1: the largest checkpoint, 1.4 GB, migrates in about 3.5 s"""

_WORKLOAD_PHYSICS = {
    OTHERS: WorkloadPhysics(costs=_IMAGES),
    "VGG16": WorkloadPhysics(
        costs=_IMAGES, locality=Locality(switches=0.8, sockets=0.6, nodes=0.5)
    ),
    "ResNet-50": WorkloadPhysics(
        costs=_IMAGES,
        locality=Locality(nodes=0.9),
        network=Contention(sensitivity=0.47),
        switch=Contention(load=0.0),
    ),
    "InceptionV3": WorkloadPhysics(
        costs=_IMAGES, locality=Locality(nodes=0.8), network=Contention(sensitivity=0.30)
    ),
    "DeepSpeech": WorkloadPhysics(costs=_SPEECH, network=Contention(sensitivity=0.05)),
    "LanguageModel": WorkloadPhysics(costs=_LANGUAGE, switch=Contention(sensitivity=0.19)),
    "GNMT": WorkloadPhysics(costs=_LANGUAGE, switch=Contention(sensitivity=0.10)),
}


@cache
def gandiva_physics() -> Physics:
    """Return all effects switched on, with Table 1's utilisation and gains of packing."""
    natures = dict(_WORKLOAD_PHYSICS)
    for workload, packing in gandiva_packing().items():
        known = natures.get(workload, natures[OTHERS])
        natures[workload] = replace(known, packed=packing.ratio, utilization=packing.utilization)
    return Physics(natures=natures, topology=Topology(per_switch=2, per_socket=2))
