"""Fairness audit of one policy on one snapshot: figures with witnesses."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fairlead.insight.audit.fairness_metrics import (
    Envy,
    ParetoSlack,
    SharingIncentive,
    efficiency,
    envy,
    gain_scale,
    pareto,
    sharing_incentive,
)
from fairlead.insight.audit.misreport import (
    SOLVES,
    Misreport,
    MisreportSearchResult,
    search,
)
from fairlead.insight.audit.reported_speeds import MisreportEvaluator, with_reported_speeds
from fairlead.insight.bundles import ReceivedShares, participants_of, received_shares
from fairlead.insight.participants import ParticipantKind, Participants
from fairlead.model.snapshot import Snapshot
from fairlead.policies.base import Policy


@dataclass(frozen=True, slots=True, eq=False)
class Audit:
    """Measured fairness and efficiency of a policy's allocation."""

    policy: str
    where: str
    """name of the audited instance or trace"""
    participants: Participants
    received: ReceivedShares
    slack: ParetoSlack
    envy: Envy
    incentive: SharingIncentive
    misreports: MisreportSearchResult | None
    """None if the search was switched off"""
    efficiency: float
    evaluator: MisreportEvaluator
    believed_speeds: int = 0
    """speeds of a live server that the figures rest on"""
    assumed_speeds: tuple[str, ...] = ()
    """those of them that no job has measured, each as ``workload on accelerator``"""

    def figures(self) -> dict[str, float]:
        """Return figure → value, by the names that ``--fail-if`` accepts."""
        figures = {
            "pareto_slack": self.slack.slack,
            "envy": self.envy.worst,
            "sharing_incentive": self.incentive.worst,
            "efficiency": self.efficiency,
        }
        if self.misreports is not None:
            figures["over_report"] = self.misreports.over.gain if self.misreports.over else 0.0
            figures["under_report"] = self.misreports.under.gain if self.misreports.under else 0.0
        return figures

    def reported(self, misreport: Misreport) -> dict[str, dict[str, float]]:
        """Return job → accelerator → misreported speed, where it differs from the true speed."""
        snap, jobs = self.evaluator.snap, self.evaluator.jobs_of(misreport.participant)
        reported = with_reported_speeds(snap, jobs, misreport.multipliers).speed
        accelerators = snap.cluster.accelerators
        return {
            snap.ids[int(snap.job[row])]: {
                accelerators[j]: float(reported[row, j])
                for j in np.flatnonzero(reported[row] != snap.speed[row]).tolist()
            }
            for row in jobs.tolist()
        }

    def as_dict(self) -> dict[str, Any]:
        """Return the audit as the command line's JSON document."""
        names, envy = self.participants.names, self.envy
        gains = self.slack.gain
        return {
            "policy": self.policy,
            "where": self.where,
            "by": self.participants.by,
            "pareto_slack": self.slack.slack,
            "pareto_gains": {
                name: gain
                for name, gain in zip(names, gains.tolist(), strict=True)
                if gain > 1e-6 * max(float(self.received.value.sum()), 1e-300)
            },
            "envy": {
                "worst": envy.worst,
                "who": names[envy.participant] if envy.participant >= 0 else None,
                "whom": names[envy.other] if envy.other >= 0 else None,
            },
            "sharing_incentive": {
                "worst": self.incentive.worst,
                "who": names[self.incentive.participant],
            },
            "misreport": None
            if self.misreports is None
            else {
                "over": self._misreport(self.misreports.over),
                "under": self._misreport(self.misreports.under),
                "solves": self.misreports.solves,
                "participants_asked": self.misreports.searched,
            },
            "efficiency": self.efficiency,
            "feasible_set": self.participants.feasible_set,
            "assumed_speeds": [*self.assumed_speeds],
            "participants": [
                {"id": name, "weight": weight, "speed": value, "equal_split": equal}
                for name, weight, value, equal in zip(
                    names,
                    self.participants.weight.tolist(),
                    self.received.value.tolist(),
                    self.incentive.equal.tolist(),
                    strict=True,
                )
            ],
        }

    def _misreport(self, misreport: Misreport | None) -> dict[str, Any]:
        if misreport is None:
            return {"best_gain": 0.0, "who": None, "lie": None}
        return {
            "best_gain": misreport.gain,
            "who": self.participants.names[misreport.participant],
            "lie": self.reported(misreport),
        }


def audit(
    snap: Snapshot,
    policy: Policy,
    *,
    name: str = "",
    where: str = "",
    by: ParticipantKind | None = None,
    solves: int = SOLVES,
    progress: Callable[[int, int], None] | None = None,
) -> Audit:
    """Return the fairness and efficiency of a policy's allocation of a snapshot.

    Participants are the policy's rows, or the tenants of its jobs with ``by="tenants"``.
    ``solves`` limits the search for misreports; 0 switches it off. ``progress`` is called with the
    number of solves done and the limit.
    """
    allocation = policy.allocate(snap)
    participants = participants_of(snap, allocation, by)
    received = received_shares(snap, allocation, participants)
    evaluator = MisreportEvaluator(
        snap, policy, participants, received, gain_scale(participants, received)
    )
    return Audit(
        policy=name,
        where=where,
        participants=participants,
        received=received,
        slack=pareto(participants, received),
        envy=envy(participants, received),
        incentive=sharing_incentive(participants, received),
        misreports=search(evaluator, solves=solves, progress=progress) if solves else None,
        efficiency=efficiency(participants, received),
        evaluator=evaluator,
    )
