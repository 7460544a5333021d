"""The last decision about the scheduling config: start-up settings, or an operator's live change.

A live change outlives restarts with the same start-up settings. A start with other settings is
the later decision, so it wins and removes the live change.
"""

import json
from dataclasses import asdict, dataclass

import structlog

from fairlead.live.config import LiveConfig
from fairlead.live.scheduling_config import SchedulingConfig, config_for_state
from fairlead.store import Put, Remove, Store

log = structlog.get_logger("fairlead.live")

_KIND, _ID = "policy", "live"


@dataclass(frozen=True, slots=True)
class LiveChange:
    """A scheduling config that an operator chose while the server ran."""

    config: str
    """name of the config"""
    settings: str
    """start-up settings of the server at that time"""
    at: float
    by: str
    """name of the operator"""

    @property
    def document(self) -> Put:
        """The document that holds the change."""
        return Put(_KIND, _ID, json.dumps(asdict(self)))


REMOVE_CHANGE = Remove(_KIND, _ID)
_DAMAGED = LiveChange("", "", 0.0, "")
"""stands for a change whose document cannot be read"""


@dataclass(frozen=True, slots=True)
class Decision:
    """The scheduling config in force at the start of a server."""

    config: SchedulingConfig
    change: LiveChange | None = None
    """the live change that set it; None if the start-up settings did"""
    overruled: LiveChange | None = None
    """an earlier live change that other start-up settings have replaced"""


def read_decision(store: Store, config: LiveConfig) -> Decision:
    """Return the decision that holds for a server with these start-up settings."""
    text = store.document(_KIND, _ID)
    if text is None:
        return Decision(config.scheduling)
    try:
        change = LiveChange(**json.loads(text))
    except (ValueError, TypeError) as error:
        log.warning("policy.live_change_damaged", error=str(error))
        return Decision(config.scheduling, overruled=_DAMAGED)
    if change.settings != config.start_settings:
        log.warning("policy.start_settings_win", by=change.by, changed_at=change.at)
        return Decision(config.scheduling, overruled=change)
    kept = config_for_state(change.config, config.scheduling, store, config.load_scheduling)
    log.info("policy.live_change_kept", policy=kept.policy, by=change.by, changed_at=change.at)
    return Decision(kept, change)
