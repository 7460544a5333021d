"""Leases of a restored backup: their processes are gone, so they ended when it was made."""

from collections.abc import Callable

import structlog

from fairlead.core.queries import Queries
from fairlead.engines.base import Ended
from fairlead.job import checkpoint
from fairlead.live.inputs.inbox import Inbox
from fairlead.live.leases.outcomes import LeaseOutcomes
from fairlead.live.nodes.lifecycle import NodeController
from fairlead.store import Restoration, Store

log = structlog.get_logger("fairlead.live")

_MESSAGE = "its server was restored from a backup"


def end_restored_leases(
    store: Store,
    last_at: float,
    queries: Queries,
    nodes: NodeController,
    outcomes: LeaseOutcomes,
    inbox: Inbox,
    checkpoint_dir: Callable[[str], str],
) -> None:
    """Post the ends of all leases of a restored backup, at its time and with the steps in it.

    ``last_at``: time of the last event. No time since then counts as used or lost. All nodes are
    lost first, so that nothing starts at that time; those that the engine has return now.
    """
    restoration = Restoration.read(store)
    if restoration is None:
        return
    at = max(restoration.made_at, last_at)
    open_leases = queries.open_leases()
    log.info("backup.restored", made_at=restoration.made_at, leases=len(open_leases))
    nodes.lose_all(at)
    for lease in open_leases:
        # A backup holds no copies' checkpoints, only those that were merged.
        steps = None if lease.copy else checkpoint.saved_steps(checkpoint_dir(lease.job_id))
        outcomes.lease_ended(Ended(lease.number, "lost", steps, _MESSAGE), at)
    changes = restoration.changes(len(open_leases))
    inbox.post(lambda _: [], changes)
