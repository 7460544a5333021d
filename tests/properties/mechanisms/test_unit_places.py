"""Units stay on the devices that their jobs hold: the one with most jobs there first."""

from collections import Counter
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as nst

from fairlead.model.cluster import Cluster
from fairlead.model.instance import Instance
from fairlead.model.plan import ABSENT
from fairlead.model.snapshot import snapshot_of
from fairlead.placement.units import _claimed_devices

SNAP = snapshot_of(Instance(Cluster.of({"v100": 5}), ()))


def _one_by_one(held: Any) -> list[int]:
    claims = Counter((u, d) for u, here in enumerate(held.tolist()) for d in here if d >= 0)
    rivals = Counter(device for _, device in claims)
    place_of, taken = [ABSENT] * len(held), set()
    for _, _, u, device in sorted((-n, rivals[d], u, d) for (u, d), n in claims.items()):
        if place_of[u] == ABSENT and device not in taken:
            place_of[u] = device
            taken.add(device)
    return place_of


@given(st.integers(1, 3), st.integers(1, 6), st.data())
def test_claims_are_settled_as_one_by_one(width: int, units: int, data: st.DataObject) -> None:
    devices = st.integers(ABSENT, 4)
    held = data.draw(nst.arrays(np.int64, (units, width), elements=devices))
    assert _claimed_devices(SNAP, held).tolist() == _one_by_one(held)
