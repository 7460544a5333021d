"""What every engine must do: checks that take a rig and raise BrokenPromiseError.

A check makes its own engine, runs a probe program as a job, and looks at what the probe was given,
what the engine reports and what is left. ``CHECKS`` are the checks; run each on a fresh ``Rig``
root. The probe's processes must be visible on this machine, as those of a cluster on loopback are.
"""

from collections.abc import Callable

from fairlead.testing.engines.bench import Rig
from fairlead.testing.engines.ends import (
    check_ends_are_told_as_they_were,
    check_launch_behind_the_fence_starts_nothing,
    check_member_that_fails_ends_its_gang,
    check_output_and_progress_can_be_followed,
    check_stop_lets_members_save_and_kills_the_deaf,
)
from fairlead.testing.engines.launches import (
    check_calls_can_be_repeated,
    check_gang_over_nodes_meets,
    check_inventory_says_types_counts_nodes_and_racks,
    check_lease_that_nobody_knows_can_be_stopped,
    check_member_finds_its_device_and_its_job,
    check_stop_right_after_launch_is_heard,
)
from fairlead.testing.engines.restarts import (
    check_fifty_launches_and_stops_leave_nothing_behind,
    check_loss_and_return_of_a_node_are_told,
    check_new_engine_adopts_what_runs_and_stops_the_rest,
    check_no_device_is_used_twice,
)

Check = Callable[[Rig], None]

CHECKS: tuple[Check, ...] = (
    check_inventory_says_types_counts_nodes_and_racks,
    check_member_finds_its_device_and_its_job,
    check_gang_over_nodes_meets,
    check_calls_can_be_repeated,
    check_lease_that_nobody_knows_can_be_stopped,
    check_stop_right_after_launch_is_heard,
    check_stop_lets_members_save_and_kills_the_deaf,
    check_ends_are_told_as_they_were,
    check_member_that_fails_ends_its_gang,
    check_launch_behind_the_fence_starts_nothing,
    check_output_and_progress_can_be_followed,
    check_new_engine_adopts_what_runs_and_stops_the_rest,
    check_no_device_is_used_twice,
    check_fifty_launches_and_stops_leave_nothing_behind,
    check_loss_and_return_of_a_node_are_told,
)
