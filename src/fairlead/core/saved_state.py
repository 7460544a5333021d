"""Saved form of a scheduler's whole state; saving it lets the event log be cut."""

import json
from typing import Any

from fairlead.core.event_log import decode_value, encode_value
from fairlead.core.scheduler import Scheduler
from fairlead.model.cluster import Cluster
from fairlead.model.errors import ProtocolError
from fairlead.model.speeds.planned import Trials

STATE_VERSION = 1


def save_state(scheduler: Scheduler[Any]) -> str:
    """Return a text from which ``load_state`` brings a new scheduler into the same state."""
    return json.dumps(_state_document(scheduler), separators=(",", ":"))


def state_bytes(scheduler: Scheduler[Any]) -> bytes:
    """Return all that later decisions depend on in canonical form: equal states, equal bytes.

    The scheduler's configuration, its mechanism and beliefs, is not part of its state.
    """
    return json.dumps(_state_document(scheduler), sort_keys=True, separators=(",", ":")).encode()


def load_state(scheduler: Scheduler[Any], text: str) -> None:
    """Bring a new scheduler, configured as the saved one was, into the saved state.

    Its cluster becomes the saved one; later events add and remove nodes.
    """
    state = decode_value(json.loads(text), type(scheduler.memory))
    if state["form"] != STATE_VERSION:
        raise ProtocolError(f"the saved state has form {state['form']}, not {STATE_VERSION}")
    now = scheduler.cluster
    scheduler.measured_speeds.restore(state.get("measured_speeds", ()))
    scheduler.measured_speeds.restore_pairs(state.get("measured_pairs", ()))
    scheduler.trials = Trials.restored(state.get("trials", {}))
    scheduler.reset(Cluster(state.get("nodes", now.nodes), now.details))
    scheduler.use_measured_speeds()
    scheduler.jobs.restore(state["jobs"])
    scheduler.leases.restore(state["leases"])
    scheduler.usage.restore(state["usage"])
    scheduler.restarts.restore(state.get("restarts", {}))
    for name in _SAVED_ATTRIBUTES:
        setattr(scheduler, name, state[name])
    scheduler.left_out = state.get("left_out", ())
    scheduler.nodes.restore(state)
    scheduler.jobs.set_permanent_devices(scheduler.nodes.permanent_devices)


def _state_document(scheduler: Scheduler[Any]) -> Any:
    measured = scheduler.measured_speeds.saved()
    restarts = scheduler.restarts.saved()
    pairs, trials = scheduler.measured_speeds.saved_pairs(), scheduler.trials.saved()
    return encode_value(
        {
            "form": STATE_VERSION,
            "jobs": scheduler.jobs.saved(),
            "leases": scheduler.leases.saved(),
            "usage": scheduler.usage.columns(),
            **{name: getattr(scheduler, name) for name in _SAVED_ATTRIBUTES},
            **({"left_out": scheduler.left_out} if scheduler.left_out else {}),
            **({"measured_speeds": measured} if measured else {}),
            **({"measured_pairs": pairs} if pairs else {}),
            **({"trials": trials} if trials else {}),
            **({"restarts": restarts} if restarts else {}),
            "nodes": scheduler.cluster.nodes,
            **scheduler.nodes.columns(),
        }
    )


_SAVED_ATTRIBUTES = (
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
