"""Jobs whose processes are parked get the devices that they left, at no cost for others."""

import pytest

from fairlead.model.arrays import NO_INTS
from fairlead.model.cluster import Cluster, Node
from fairlead.model.lease import Placement, Placements
from fairlead.model.plan import Plan
from fairlead.placement import exchange_devices

CLUSTER = Cluster((Node("a", ("v100",) * 3 + ("k80",)), Node("b", ("v100",))))


def exchanged(
    devices: dict[int, tuple[int, ...]], wanted: dict[int, int]
) -> dict[int, tuple[int, ...]]:
    units = Placements.of([Placement(job, 0, places) for job, places in devices.items()])
    plan = exchange_devices(Plan(NO_INTS, units, 1.0, 1.0), CLUSTER, wanted)
    return {placement.job: placement.devices for placement in plan.start}


@pytest.mark.parametrize(
    ("devices", "wanted", "expected"),
    [
        ({7: (0,), 8: (1,)}, {7: 1, 8: 0}, {7: (1,), 8: (0,)}),
        ({7: (0,), 8: (1,), 9: (2,)}, {7: 2, 8: 0, 9: 1}, {7: (2,), 8: (0,), 9: (1,)}),
        ({7: (0,), 8: (1,)}, {7: 1}, {7: (1,), 8: (0,)}),
    ],
)
def test_parked_jobs_get_the_devices_that_they_left(
    devices: dict[int, tuple[int, ...]],
    wanted: dict[int, int],
    expected: dict[int, tuple[int, ...]],
) -> None:
    assert exchanged(devices, wanted) == expected


@pytest.mark.parametrize(
    ("devices", "wanted"),
    [
        ({7: (0,), 8: (1,)}, {7: 2}),  # nobody gives it up now
        ({7: (0,), 8: (1,)}, {7: 1, 8: 1}),
        ({7: (0,), 8: (3,)}, {7: 3}),  # of another accelerator
        ({7: (0,), 8: (4,)}, {7: 4}),  # on another node
        ({7: (0,), 8: (1, 2)}, {7: 1}),  # of a gang
        ({7: (0,), 8: (1,), 9: (1,)}, {7: 1}),  # shared
        ({7: (0,), 9: (0,), 8: (1,)}, {7: 1}),
    ],
)
def test_no_job_gives_up_a_device_that_is_not_equal(
    devices: dict[int, tuple[int, ...]], wanted: dict[int, int]
) -> None:
    assert exchanged(devices, wanted) == devices
