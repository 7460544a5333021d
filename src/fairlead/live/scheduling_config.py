"""Persisted scheduling config: events are replayed under the config they were logged under."""

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from fairlead.core import Scheduler
from fairlead.mechanisms.base import Mechanism, SupportsRefill
from fairlead.model.cluster import Cluster
from fairlead.model.commands import Command
from fairlead.model.errors import FairleadError, UsageError
from fairlead.model.speeds.table import SpeedKey, SpeedTable
from fairlead.model.tenants.weight_scope import WeightScope
from fairlead.registry import PlugIn
from fairlead.store import Put, Store


@dataclass(frozen=True, kw_only=True)
class SchedulingConfig:
    """A mechanism, its believed speeds, and its lead time for plans."""

    beliefs: SpeedTable
    mechanism: Mechanism[Any]
    plan_lead_s: float
    """seconds before the end of a round at which the next plan is requested"""
    hands_over: bool = False
    """whether processes of planned moves start before the end of a round"""
    weight_scope: WeightScope = "cluster"
    """jobs with which weights and priorities of jobs are compared"""
    guaranteed_refills: bool = True
    """whether tenants below their guarantee come first when devices fall idle in mid-round"""
    charges_idle: bool = False
    """whether pinned devices count against shares as if all tenants had jobs"""
    text: str
    """persisted form, from which the config can be built again"""
    plug_ins: tuple[PlugIn, ...] = ()
    """the policy, if there is one, and the mechanism, with the packages that provide them"""
    policy: str = ""
    """name and options of the policy"""
    mechanism_name: str | None = None
    """name and options of the mechanism; None: the policy's own"""
    round_s: float | None = None
    """length of a round; None: the mechanism's own"""

    @cached_property
    def name(self) -> str:
        """Hash of the text."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    @property
    def mechanism_label(self) -> str:
        """Name of the mechanism in use."""
        return self.mechanism_name or type(self.mechanism).__name__.lower()

    @cached_property
    def speeds_label(self) -> str:
        """Size of the speed table and a hash of its content."""
        rows = sorted([*key[:4], key.partner or "", speed] for key, speed in self._speed_rows)
        digest = hashlib.sha256(json.dumps(rows).encode()).hexdigest()
        return f"{len(rows)} speeds, {digest[:12]}"

    @property
    def _speed_rows(self) -> Iterable[tuple[SpeedKey, float]]:
        return self.beliefs.steps_per_s.items()

    def make_scheduler(
        self, cluster: Cluster, guard_refill: Callable[[SupportsRefill], SupportsRefill]
    ) -> Scheduler[Any]:
        """Return a new scheduler that decides under this config."""
        return Scheduler(
            cluster,
            self.beliefs,
            self.mechanism,
            plan_lead_s=self.plan_lead_s,
            weight_scope=self.weight_scope,
            guaranteed_refills=self.guaranteed_refills,
            charges_idle=self.charges_idle,
            guard_refill=guard_refill,
        )

    @property
    def document(self) -> Put:
        """The document that holds the text."""
        return Put("rules", self.name, self.text)


@dataclass
class SavedState:
    """The last saved state, and the name of the scheduling config of the events after it."""

    seq: int = 0
    """number of the last event that it includes"""
    state: dict[str, Any] | None = None
    config: str | None = None
    """None: nothing was saved yet, or by a version that saved no name"""

    @classmethod
    def read(cls, store: Store) -> "SavedState":
        """Return the last state in a store."""
        saved = store.load_state()
        if saved is None:
            return cls()
        seq, body = saved
        state = json.loads(body)
        return cls(seq, state, state.get("rules"))


def config_for_state(
    name: str | None,
    current: SchedulingConfig,
    store: Store,
    load: Callable[[str], SchedulingConfig],
) -> SchedulingConfig:
    """Return the config under which a state was saved; ``current`` if the state names none.

    Later events must be replayed under it, because their effects depend on it.
    """
    if name is None or name == current.name:
        return current
    try:
        return load(store.documents("rules")[name])
    except FairleadError as error:
        raise UsageError(
            "the data were written under a scheduling config that is needed to read them and"
            f" cannot be built now: {error}"
        ) from None


def apply_config(scheduler: Scheduler[Any], config: SchedulingConfig) -> list[Command]:
    """Make a scheduler decide under another config from now on; return its commands.

    Raises InputError, and changes nothing, if a job that has not ended could never run.
    """
    return scheduler.reconfigure(
        config.beliefs,
        config.mechanism,
        config.plan_lead_s,
        config.weight_scope,
        config.guaranteed_refills,
        config.charges_idle,
    )


def apply_config_at_start(scheduler: Scheduler[Any], config: SchedulingConfig) -> None:
    """Make a restored scheduler decide under another config; refuse one that strands a job."""
    try:
        apply_config(scheduler, config)
    except FairleadError as error:
        raise UsageError(
            f"with these settings a job that has not ended could never run: {error}. Start the"
            " server with its former settings and cancel the job, or keep policy and speeds"
        ) from None
