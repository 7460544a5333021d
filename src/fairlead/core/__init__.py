"""The scheduler: a state machine from events to commands, the same in simulation and live."""

from fairlead.core.event_log import decode_event, encode_event, replay
from fairlead.core.saved_state import load_state, save_state, state_bytes
from fairlead.core.scheduler import Scheduler

__all__ = [
    "Scheduler",
    "decode_event",
    "encode_event",
    "load_state",
    "replay",
    "save_state",
    "state_bytes",
]
