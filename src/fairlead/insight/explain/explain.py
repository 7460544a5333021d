"""Explanation of a job's or tenant's speed, and of changes that would raise it."""

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, NamedTuple

import numpy as np

from fairlead.insight.bundles import job_devices, normalised
from fairlead.insight.explain.binding_constraints import Binding, bindings
from fairlead.insight.explain.changes import EFFORT, Change, changes
from fairlead.insight.explain.shadow_prices import Prices
from fairlead.insight.explain.starvation import (
    CanSee,
    devices_now,
    everything,
    starvation_causes,
)
from fairlead.insight.explain.subject import (
    Subject,
    devices_of,
    speed_of,
    speeds,
)
from fairlead.model.allocation import Allocation
from fairlead.model.arrays import FloatArray
from fairlead.model.errors import InputError, SolveError
from fairlead.model.snapshot import Snapshot
from fairlead.model.speeds.interval import interval_80
from fairlead.model.speeds.key import SpeedSource
from fairlead.model.tenants.tree import TenantTree
from fairlead.policies.base import Policy, WarmStart, allocate

MIN_GAIN_REPORTED = 0.01
"""smallest relative gain of a reported change"""


class JobSpeed(NamedTuple):
    """Believed speed of a job on one accelerator."""

    steps_per_s: float
    source: SpeedSource
    doubt: float | None = None
    """standard deviation of the logarithm of an assumed speed; None: not stated"""
    planned_steps_per_s: float | None = None
    """speed that decisions use in its place, so that the job is tried there; None: the same"""


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """Effect of a change, computed by solving again."""

    change: Change
    speed: float
    gain: float
    """relative to the current speed; infinite if that is 0"""
    others: float
    """largest relative loss of another job or tenant, 0 or less"""
    marginal: float | None
    """relative gain predicted by the prices; None if they do not apply"""

    @property
    def linear(self) -> bool | None:
        """Whether the prices predict the gain within a tenth; None if they do not apply."""
        if self.marginal is None or not math.isfinite(self.gain):
            return None
        return abs(self.marginal - self.gain) <= 0.1 * max(abs(self.gain), 1e-6)


@dataclass(frozen=True, slots=True, eq=False)
class Explanation:
    """Current speed of a job or tenant, its binding constraints, and effects of changes."""

    policy: str
    subject: Subject
    snap: Snapshot
    allocation: Allocation
    speed: float
    """steps per second of a job, or normalised speed of a tenant"""
    normal: float
    """normalised speed"""
    devices: FloatArray
    """accelerators → average number of devices held"""
    prices: Prices | None
    """None if the policy has none"""
    binding: tuple[Binding, ...]
    outcomes: tuple[Outcome, ...]
    """effective changes first; then by effort and gain"""
    believed: Mapping[str, JobSpeed] = field(default_factory=dict)
    """accelerators → speed of the job there; empty if the speeds are those of an instance"""
    steps_left: float | None = None
    """steps that the job has left; None if its number is not known"""

    @property
    def left_s(self) -> tuple[float, float, float] | None:
        """Seconds until the end at this speed, and the bounds of their 80 % interval.

        None if the job's length is not known, or if it makes no steps. Errors of assumed speeds
        count as one: a job that is faster than assumed is so on all accelerators.
        """
        if self.steps_left is None or self.subject.is_tenant or self.speed <= 0.0:
            return None
        expected_s = self.steps_left / self.speed
        return expected_s, *interval_80(expected_s, self._doubt)

    @property
    def _doubt(self) -> float:
        """Standard deviation of the logarithm of the speed, from those of the devices held."""
        accelerators = self.snap.cluster.accelerators
        held = dict(zip(accelerators, self.devices.tolist(), strict=True))
        parts = [
            (held[name] * speed.steps_per_s, speed.doubt or 0.0)
            for name, speed in self.believed.items()
        ]
        total = sum(part for part, _ in parts)
        return sum(part * doubt for part, doubt in parts) / total if total > 0.0 else 0.0

    @property
    def rests_on_assumptions(self) -> bool:
        """Whether the speed of the job on a device that it holds was never measured."""
        accelerators = self.snap.cluster.accelerators
        held = {a for a, count in zip(accelerators, self.devices, strict=True) if count > 1e-6}
        return any(
            speed.source == "assumed" for name, speed in self.believed.items() if name in held
        )

    @property
    def cheapest(self) -> Outcome | None:
        """The effective change with the least effort, if any."""
        return next((o for o in self.outcomes if o.gain >= MIN_GAIN_REPORTED), None)

    @property
    def largest(self) -> Outcome | None:
        """The change with the highest gain, if any is effective."""
        best = max(self.outcomes, key=lambda o: o.gain, default=None)
        return best if best is not None and best.gain >= MIN_GAIN_REPORTED else None

    def as_dict(self) -> dict[str, Any]:
        """Return the explanation as the command line's JSON document."""
        accelerators = self.snap.cluster.accelerators
        cheapest, prices, left = self.cheapest, self.prices, self.left_s
        return {
            "policy": self.policy,
            "who": self.subject.name,
            "kind": "tenant" if self.subject.is_tenant else "job",
            "of_job": self.subject.of_job,
            "speed": self.speed,
            "normalised_speed": self.normal,
            "left_s": left and dict(zip(("expected", "low", "high"), left, strict=True)),
            "believed_speeds": {name: s._asdict() for name, s in self.believed.items()},
            "devices": dict(zip(accelerators, self.devices.tolist(), strict=True)),
            "prices": prices and dict(zip(accelerators, prices.price.tolist(), strict=True)),
            "price_per_speed": prices
            and {
                k: v for k, v in zip(accelerators, prices.per_speed, strict=True) if v is not None
            },
            "part_of_worth": prices and prices.part,
            "binding": [{"what": b.what, "why": b.why, "on": b.on} for b in self.binding],
            "cheapest": None if cheapest is None else _as_dict(cheapest),
            "changes": [_as_dict(outcome) for outcome in self.outcomes],
        }


def _as_dict(outcome: Outcome) -> dict[str, Any]:
    change = outcome.change
    return {
        "kind": change.kind,
        "what": change.what,
        "edit": change.edit,
        "assumed": change.assumed or None,
        "speed": outcome.speed,
        "gain": outcome.gain if math.isfinite(outcome.gain) else None,
        "worst_loss_of_others": outcome.others,
        "marginal_gain": outcome.marginal,
        "linear": outcome.linear,
    }


def explain(
    snap: Snapshot,
    policy: Policy,
    subject_id: str,
    *,
    name: str = "",
    tenant: bool = False,
    can_see: CanSee = everything,
    believed: Mapping[str, JobSpeed] | None = None,
    steps_left: float | None = None,
) -> Explanation:
    """Return the explanation of a job's or tenant's speed and the effect of each possible change.

    ``tenant`` selects the tenant even if a job has the same id. The gain of every change is
    computed by solving again. ``can_see``: the tenants whose jobs may be named as causes.
    ``believed``: accelerators → speed of the job there, with its source. ``steps_left``: its
    remaining steps, if their number is known.
    """
    subject = find(snap, subject_id, tenant=tenant)
    warm = WarmStart()
    allocation = allocate(policy, snap, warm)
    if allocation.rows == "tenants" and not subject.is_tenant:
        owner = snap.tenants[subject.tenant].id
        subject = Subject(
            owner,
            subject.tenant,
            np.flatnonzero(snap.tenant == subject.tenant),
            is_tenant=True,
            of_job=subject.name,
        )
    speed = speeds(snap, allocation)
    prices = Prices.of(snap, allocation, subject)
    now = speed_of(subject, snap, speed, allocation.rows)
    normal = now
    if allocation.rows == "jobs" and not subject.is_tenant:
        normal = float(normalised(snap, speed)[subject.rows[0]])
    outcomes = [
        outcome
        for change in changes(snap, subject.rows, subject.tenant)
        if (outcome := _outcome(snap, policy, warm, subject, allocation, change, prices))
    ]
    outcomes = [o for o in outcomes if abs(o.gain) > 1e-6]
    outcomes.sort(
        key=lambda o: (
            o.gain < MIN_GAIN_REPORTED,
            EFFORT.index(o.change.kind),
            -round(o.gain, 9),  # the last bits differ between machines
            o.change.what,
        )
    )
    return Explanation(
        policy=name,
        subject=subject,
        snap=snap,
        allocation=allocation,
        speed=now,
        normal=normal,
        devices=devices_of(subject, snap, allocation),
        prices=prices,
        binding=(
            *bindings(snap, allocation, subject),
            *_starvation(snap, allocation, subject, can_see),
        ),
        outcomes=tuple(outcomes),
        believed=believed or {},
        steps_left=steps_left,
    )


def _starvation(
    snap: Snapshot, allocation: Allocation, subject: Subject, can_see: CanSee
) -> Iterator[Binding]:
    """Yield the causes for which a job, or the job whose tenant is explained, is starved."""
    if allocation.rows == "jobs":
        for row in subject.rows[:1].tolist() if not subject.is_tenant else ():
            yield from starvation_causes(snap, row, job_devices(snap, allocation), can_see)
        return
    if subject.of_job is not None:
        row = find(snap, subject.of_job).rows[0]
        yield from starvation_causes(snap, int(row), devices_now(snap), can_see)


def find(snap: Snapshot, subject_id: str, *, tenant: bool = False) -> Subject:
    """Return the job or tenant with this id; the InputError names similar ids."""
    jobs = {snap.ids[int(number)]: row for row, number in enumerate(snap.job)}
    tenants = {t.id: i for i, t in enumerate(snap.tenants) if (snap.tenant == i).any()}
    if subject_id in jobs and not tenant:
        row = jobs[subject_id]
        return Subject(subject_id, int(snap.tenant[row]), np.array([row]), is_tenant=False)
    if subject_id in tenants:
        index = tenants[subject_id]
        return Subject(subject_id, index, np.flatnonzero(snap.tenant == index), is_tenant=True)
    if inner := _descendants_with_jobs(snap, subject_id, tenants):
        raise InputError(
            f"no jobs of tenant {subject_id!r} itself, only of its descendants",
            fix=f"expected one of {', '.join(inner)}",
            field="JOB|TENANT",
        )
    near = (
        get_close_matches(subject_id, [*jobs, *tenants], n=5, cutoff=0.5) or [*jobs, *tenants][:5]
    )
    raise InputError(
        f"no job or tenant with jobs: {subject_id!r}",
        fix=f"expected an id such as {', '.join(near)}" if near else "expected some jobs",
        field="JOB|TENANT",
    )


def _descendants_with_jobs(snap: Snapshot, outer: str, having: Collection[str]) -> list[str]:
    """Return the descendants of a tenant among the tenants ``having`` jobs."""
    inside = TenantTree(snap.tenants).descendants(outer)
    return [name for name in having if name in inside]


def _outcome(
    snap: Snapshot,
    policy: Policy,
    warm: WarmStart,
    subject: Subject,
    before: Allocation,
    change: Change,
    prices: Prices | None,
) -> Outcome | None:
    """Return the effect of a change; None if no allocation exists with it."""
    try:
        after = allocate(policy, change.snap, warm)
    except (SolveError, InputError):
        return None
    old, new = speeds(snap, before), speeds(change.snap, after)
    was = speed_of(subject, snap, old, before.rows)
    is_ = speed_of(subject, snap, new, after.rows)
    others = np.ones(len(old), dtype=bool)
    others[subject.rows if before.rows == "jobs" else [subject.tenant]] = False
    change_of = new[others] / np.where(old[others] > 0, old[others], np.inf) - 1
    lost = np.where(old[others] > 0, change_of, 0.0)
    return Outcome(
        change,
        is_,
        (is_ - was) / was if was > 0 else math.inf if is_ > 0 else 0.0,
        float(lost.min(initial=0.0)),
        None if prices is None else prices.predicted_gain(change),
    )
