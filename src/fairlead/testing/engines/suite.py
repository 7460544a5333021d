"""Conformance checks of engines; each takes a fixture and raises ContractViolationError.

A check makes an engine, runs a probe program as a job, and examines the probe's environment, the
engine's reports and remaining objects. Run each of ``CHECKS`` on a fresh ``EngineFixture`` root.
The probe's processes must be visible on this machine, as those of a loopback cluster are.
"""

from collections.abc import Callable

from fairlead.testing.engines.ends import (
    check_failed_member_ends_its_gang,
    check_fenced_launch_starts_nothing,
    check_outcomes_are_reported,
    check_output_and_progress_are_visible,
    check_stop_grants_the_grace_period_before_killing,
)
from fairlead.testing.engines.harness import EngineFixture
from fairlead.testing.engines.launches import (
    check_calls_are_idempotent,
    check_gang_over_nodes_connects,
    check_inventory_is_complete,
    check_member_gets_device_and_environment,
    check_stop_right_after_launch_is_honoured,
    check_unknown_lease_can_be_stopped,
)
from fairlead.testing.engines.restarts import (
    check_no_device_is_used_twice,
    check_node_loss_and_return_are_reported,
    check_repeated_launches_leak_nothing,
    check_restart_adopts_leases_and_stops_orphans,
)

Check = Callable[[EngineFixture], None]

CHECKS: tuple[Check, ...] = (
    check_inventory_is_complete,
    check_member_gets_device_and_environment,
    check_gang_over_nodes_connects,
    check_calls_are_idempotent,
    check_unknown_lease_can_be_stopped,
    check_stop_right_after_launch_is_honoured,
    check_stop_grants_the_grace_period_before_killing,
    check_outcomes_are_reported,
    check_failed_member_ends_its_gang,
    check_fenced_launch_starts_nothing,
    check_output_and_progress_are_visible,
    check_restart_adopts_leases_and_stops_orphans,
    check_no_device_is_used_twice,
    check_repeated_launches_leak_nothing,
    check_node_loss_and_return_are_reported,
)
