"""The scheduler's whole state as one text, saved now and then so that the log can be cut."""

import json
from typing import Any

from fairlead.core.event_log import decode_value, encode_value
from fairlead.core.scheduler import Scheduler
from fairlead.model.cluster import Cluster
from fairlead.model.errors import ProtocolError

FORM = 1


def save_state(scheduler: Scheduler[Any]) -> str:
    """Return all that a new scheduler needs to go on as this one would."""
    return json.dumps(_state_document(scheduler), separators=(",", ":"))


def state_bytes(scheduler: Scheduler[Any]) -> bytes:
    """Return all that later decisions depend on in one canonical form: equal states, equal bytes.

    The rules by which a scheduler decides, its mechanism and beliefs, are no part of its state.
    """
    return json.dumps(_state_document(scheduler), sort_keys=True, separators=(",", ":")).encode()


def load_state(scheduler: Scheduler[Any], text: str) -> None:
    """Bring a new scheduler, made as the saved one was, into the saved state.

    Its cluster becomes the saved one, whatever nodes have come or gone since: that is for events
    to say.
    """
    state = decode_value(json.loads(text), type(scheduler.memory))
    if state["form"] != FORM:
        raise ProtocolError(f"the saved state has form {state['form']}, not {FORM}")
    now = scheduler.cluster
    scheduler.begin(Cluster(state.get("nodes", now.nodes), now.details))
    scheduler.jobs.restore(state["jobs"])
    scheduler.leases.restore(state["leases"])
    scheduler.usage.restore(state["usage"])
    for name in _PLAIN:
        setattr(scheduler, name, state[name])
    scheduler.nodes.restore(state)
    scheduler.jobs.expect(scheduler.nodes.lasting)


def _state_document(scheduler: Scheduler[Any]) -> Any:
    return encode_value(
        {
            "form": FORM,
            "jobs": scheduler.jobs.saved(),
            "leases": scheduler.leases.saved(),
            "usage": scheduler.usage.columns(),
            **{name: getattr(scheduler, name) for name in _PLAIN},
            "nodes": scheduler.cluster.nodes,
            **scheduler.nodes.columns(),
        }
    )


_PLAIN = (
    "memory",
    "waiting",
    "pending",
    "changes",
    "version",
    "planning",
    "round_end_at",
    "planned_from",
    "planned_epoch",
)
