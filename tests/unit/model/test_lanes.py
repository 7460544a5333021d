"""Devices that several leases hold: one lane for each."""

import numpy as np

from fairlead.model.lease import free_lanes


def test_each_lease_gets_the_first_free_lane_of_its_device() -> None:
    holder = np.array([[7, -1, -1], [-1, 8, -1]])
    same, lane = free_lanes(holder, np.array([2, 0, 1, 2]))
    assert same is holder
    assert lane.tolist() == [0, 1, 0, 1]


def test_lanes_are_added_when_all_are_held() -> None:
    holder, lane = free_lanes(np.array([[7, -1]]), np.array([0, 1, 0]))
    assert holder.tolist() == [[7, -1], [-1, -1], [-1, -1]]
    assert lane.tolist() == [1, 0, 2]
