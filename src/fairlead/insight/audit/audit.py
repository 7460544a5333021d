"""Is it fair? The figures of one policy on one snapshot, each with its witness."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fairlead.insight.audit.fairness_metrics import (
    Envy,
    SharingIncentive,
    Slack,
    efficiency,
    envy,
    gain_scale,
    pareto,
    sharing_incentive,
)
from fairlead.insight.audit.misreport import (
    SOLVES,
    Lies,
    Misreport,
    search,
)
from fairlead.insight.audit.reported_speeds import MisreportEvaluator, tell
from fairlead.insight.bundles import Received, participants_of, received
from fairlead.insight.participants import By, Participants
from fairlead.model.snapshot import Snapshot
from fairlead.policies.base import Policy


@dataclass(frozen=True, slots=True, eq=False)
class Audit:
    """What a policy does to its participants, measured."""

    policy: str
    where: str
    """what was audited"""
    parties: Participants
    received: Received
    slack: Slack
    envy: Envy
    incentive: SharingIncentive
    lies: Lies | None
    """None when they were not searched for"""
    efficiency: float
    court: MisreportEvaluator

    def figures(self) -> dict[str, float]:
        """Return the figures by the names under which they can be limited."""
        found = {
            "pareto_slack": self.slack.slack,
            "envy": self.envy.worst,
            "sharing_incentive": self.incentive.worst,
            "efficiency": self.efficiency,
        }
        if self.lies is not None:
            found["over_report"] = self.lies.over.gain if self.lies.over else 0.0
            found["under_report"] = self.lies.under.gain if self.lies.under else 0.0
        return found

    def reported(self, lie: Misreport) -> dict[str, dict[str, float]]:
        """Return job → accelerator → the speed that a lie gives, where it is not the true one."""
        snap, jobs = self.court.snap, self.court.jobs_of(lie.who)
        told = tell(snap, jobs, lie.times).speed
        kinds = snap.cluster.accelerators
        return {
            snap.ids[int(snap.job[row])]: {
                kinds[j]: float(told[row, j])
                for j in np.flatnonzero(told[row] != snap.speed[row]).tolist()
            }
            for row in jobs.tolist()
        }

    def as_dict(self) -> dict[str, Any]:
        """Return the audit as the command line's JSON document."""
        names, envy = self.parties.names, self.envy
        gains = self.slack.gain
        return {
            "policy": self.policy,
            "where": self.where,
            "by": self.parties.by,
            "pareto_slack": self.slack.slack,
            "pareto_gains": {
                name: gain
                for name, gain in zip(names, gains.tolist(), strict=True)
                if gain > 1e-6 * max(float(self.received.value.sum()), 1e-300)
            },
            "envy": {
                "worst": envy.worst,
                "who": names[envy.who] if envy.who >= 0 else None,
                "whom": names[envy.whom] if envy.whom >= 0 else None,
            },
            "sharing_incentive": {
                "worst": self.incentive.worst,
                "who": names[self.incentive.who],
            },
            "misreport": None
            if self.lies is None
            else {
                "over": self._lie(self.lies.over),
                "under": self._lie(self.lies.under),
                "solves": self.lies.solves,
                "participants_asked": self.lies.asked,
            },
            "efficiency": self.efficiency,
            "feasible_set": self.parties.feasible_set,
            "participants": [
                {"id": name, "weight": weight, "speed": value, "equal_split": equal}
                for name, weight, value, equal in zip(
                    names,
                    self.parties.weight.tolist(),
                    self.received.value.tolist(),
                    self.incentive.equal.tolist(),
                    strict=True,
                )
            ],
        }

    def _lie(self, lie: Misreport | None) -> dict[str, Any]:
        if lie is None:
            return {"best_gain": 0.0, "who": None, "lie": None}
        return {
            "best_gain": lie.gain,
            "who": self.parties.names[lie.who],
            "lie": self.reported(lie),
        }


def audit(
    snap: Snapshot,
    policy: Policy,
    *,
    name: str = "",
    where: str = "",
    by: By | None = None,
    solves: int = SOLVES,
    progress: Callable[[int, int], None] | None = None,
) -> Audit:
    """Return how fair and efficient a policy's allocation of a snapshot is.

    Participants are what the policy's rows are, or the tenants of its jobs with
    ``by="tenants"``. ``solves`` bounds the search for lies, 0 leaves it out; ``progress`` is told
    how many solves are done, of how many.
    """
    allocation = policy.allocate(snap)
    parties = participants_of(snap, allocation, by)
    got = received(snap, allocation, parties)
    court = MisreportEvaluator(snap, policy, parties, got, gain_scale(parties, got))
    return Audit(
        policy=name,
        where=where,
        parties=parties,
        received=got,
        slack=pareto(parties, got),
        envy=envy(parties, got),
        incentive=sharing_incentive(parties, got),
        lies=search(court, solves=solves, progress=progress) if solves else None,
        efficiency=efficiency(parties, got),
        court=court,
    )
