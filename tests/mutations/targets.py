"""Functions that the mutation test changes, and code that it leaves out."""

TARGETS: dict[str, str] = {
    "fairlead.live.inputs.batches": "process _handle_batch",
    "fairlead.live.driver": "start _recover _switch_config renew _process_batch",
    "fairlead.live.job_requests.submissions": "submit _admit _keep",
    "fairlead.live.job_requests.changes": "suspend resume _apply",
    "fairlead.live.journal": "restore begin_batch commit save_state_if_due switch_config"
    " _write_state",
    "fairlead.live.scheduling_config": "read config_for_state",
    "fairlead.live.reconfiguration.decision": "read_decision",
    "fairlead.live.reconfiguration.switch": "switch_at_start _reconfigure _switch",
    "fairlead.live.leases.registry": "add recover close answer_renewal record_printed_steps"
    " progress_events",
    "fairlead.live.leases.lifecycle": "launch renew preempt _launch_on_engine",
    "fairlead.live.leases.outcomes": "_close events_for steps resume_backoffs _schedule_retry",
    "fairlead.live.rounds": "use_config resume set_timer _plan_due plan",
    "fairlead.live.leases.open_leases": "renew",
    "fairlead.live.nodes.lifecycle": "restore_down_nodes drain return_node remove restore report"
    " _compare _skip_drained _returned_events _taken_events",
    "fairlead.live.nodes.inventory": "reconcile_all reconcile _lost",
    "fairlead.job.checkpoint": "raise_fence fence latest read write commit wait_for_commit require"
    " _locked",
    "fairlead.atomic_file": "replacement fsync_directory",
    "fairlead.job.lease": "begin may_start check_now close _renewal_loop _renew_once"
    " _agree_on_last_step _set_last_step _renew",
    "fairlead.job.gang_exit": "has_begun last_step _announced_steps",
    "fairlead.job.leased_run": "_restore _on_signal checkpoint steps begin_step end_step finish"
    " _save_or_raise _leave _save_or_leave",
    "fairlead.job.registration": "skip",
    "fairlead.core.leases": "slots is_open of_job on_devices waits_for_release mark_leaving start"
    " close restore saved columns",
    "fairlead.core.handlers.jobs": "_deactivate job_released",
    "fairlead.core.handlers.leases": "_store_checkpointed_steps leases_ended _on_lost_nodes",
    "fairlead.core.handlers.nodes": "node_lost _preempt_on_lost_nodes node_returned devices_taken"
    " _replan_after_node_change",
    "fairlead.core.handlers.rounds": "plan_ready round_end _apply",
    "fairlead.core.launches": "launch_ready _launch renew preempt",
    "fairlead.core.plan_fitting": "fit_late_plan",
    "fairlead.core.nodes": "restore mark_lost mark_returned set_taken _recompute",
    "fairlead.core.jobs": "deactivate release restore",
    "fairlead.core.saved_state": "save_state load_state",
    "fairlead.store.store": "acquire _try_file append save_state load_state load_events documents"
    " close _check _apply",
    "fairlead.engines.keeper.supervisor": "launch stop adopt forget _recover _follow _report_end"
    " _stop_orphan",
    "fairlead.engines.keeper.keeper": "run_lease _run _watch _begin _wait_for_members _stop"
    " _forward_stop _conclude _kill _check_members",
    "fairlead.engines.keeper.outcome": "outcome_of",
    "fairlead.engines.keeper.lease_dir": "write_json read_order try_lock is_alive remove"
    " read_ended",
    "fairlead.server.api.renewals": "answer_renewal",
}
"""module → functions that uphold the invariants"""

IGNORED = (
    *("log.", "publish(", "_print_to_log", "metrics", "messages", "steps_per_s"),
    *("heartbeat_at", "_began", "rounds_s", "_due_at", "self._load", "load.", "_unsaved_bytes"),
    *("decisions_s", "Audit", "counters", "usage", "changes += 1", "planned_from"),
    *("own_steps", "packed", "copy", "free_slots", "limit_s", "memory_gib", "_progress["),
    *(
        "_remove(",
        "os.close",
        "_kill_descendants",
        "_saved_seq",
        "advance(",
        "simple",
        "_add_slots",
    ),
    *("_remove_obsolete", "_saved_at", "_polling", "_stops_requested.discard", "progress_pattern"),
    *(
        "failpoints.point(",
        "plan_or_refill(",
        "raise ProtocolError(",
        "_connection",
        "rate_limiters.",
    ),
    *("_output.copy", "_size[", "n_held", "step_at", "last_step"),
    *("emulated", "measured", "speeds.record("),
    *("self.tick()", "self.finish()", "launched_at", "_announce"),
    *(
        "until - time.monotonic()",
        "state.memory =",
        "< planned",
        "_limits_check_at",
        "_confinement",
        "reap_adopted",
        "_note_limit",
    ),
    *("dispose()", "require_matching_nodes(", "check_device_counts("),
)
"""Code that mentions these upholds no checked invariant: messages, figures, the moment of the
next plan (a skipped job is planned at the end of the round), forked and packed jobs, tables'
housekeeping, limits of single processes and of requests, failpoints, the core's rejections of
events that the driver never sends (covered by unit tests), HTTP connections, which the simulated
network lacks, the slow-down of emulated accelerators, and the output of members, which the tests
with real processes cover. No simulated server waits for the lock. The memory of mechanisms and
idle devices of a fitted plan concern fairness. Unit tests cover the rejection of jobs that can
never run and of other machines, and the audit trail. A local keeper's ``tick`` and ``finish`` are
empty, and wrong arguments of ``register`` are rejected by a check with unit tests."""
EQUIVALENT = (
    # It only affects the moment of the next plan.
    "_on_lost_nodes: False → not",
    # Waiting jobs are active unless the state has changed; the condition only saves time.
    "and/or in len(state.waiting) and state.changes != changes",
    # Only a finished forked job has another lease.
    "leases_ended: without commands += preempt(state, leases.of_job(number))",
    # No engine reports devices that a node does not have.
    "set_taken: set(numbers) <= set(range(len(devices)))",
    # It only selects the member whose speed and costs are displayed.
    "renew: rank == 0 → NotEq",
    # A file without references is closed anyway.
    "is_alive: without lock.close()",
    "_try_file: without file.close()",
    # Closing a file or a connection twice has no effect.
    "close: without self._lock = None",
    # The member reads its own announcement back a moment later.
    "last_step: without announced[self._rank] = started",
    # A member without a server only retries sooner.
    "_renew_once: max(self._until - now, _MIN_RENEWAL_S) → min",
    # It only frees memory.
    "restore: without saved.state = None",
)
"""mutations that change nothing"""
ONE_WAY = ("simple", "own_steps", "_sqlite")
"""conditions with one reachable branch: no mixed gangs, no forked jobs, SQLite only"""
