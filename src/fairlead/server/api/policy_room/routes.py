"""Routes that try changes on a copy of the live state, and judge the running policy."""

import asyncio
from hashlib import sha256

from fastapi import APIRouter

from fairlead.insight.audit.audit import audit
from fairlead.insight.audit.summary import details
from fairlead.insight.what_if import (
    Outcome,
    TenantProposal,
    outcome,
    proposed_instance,
    trade_text,
)
from fairlead.live.driver import Live
from fairlead.mechanisms.base import RealisesPolicy, SupportsTrades
from fairlead.mechanisms.factory import mechanisms_without_policy
from fairlead.model.errors import ProtocolError
from fairlead.model.instance import Instance
from fairlead.model.snapshot import Snapshot, snapshot_of
from fairlead.policies.base import Policy
from fairlead.policies.rules.priority import create_policy
from fairlead.registry import available
from fairlead.server.access.authorization import (
    ContextDependency,
    CurrentPrincipal,
)
from fairlead.server.api.live_instance import current_snapshot, instance_of, runnable_rows
from fairlead.server.api.policy_room import messages as msg
from fairlead.server.api.solving import solve

policy_room = APIRouter(prefix="/v1", tags=["policy"])

_MAX_AUDITED = 200
"""jobs up to which the server audits: larger ones take minutes"""
_SOLVES = 60
"""misreports tried"""
_MAX_TRADES = 100


@policy_room.post("/what-if")
async def what_if(
    change: msg.WhatIf, server: ContextDependency, principal: CurrentPrincipal
) -> msg.Consequences:
    """Compute the shares of tenants and jobs after changes, on a copy of the present state.

    For admins. Changes nothing: `PUT /v1/policy` and `PUT /v1/tenants/ID` do. Shares are those of
    the long run, for policies that compute shares.
    """
    principal.require("admin")
    live = server.live
    present, name = _present_policy(live), live.policy.config.policy

    def compute(snap: Snapshot) -> msg.Consequences:
        instance = _present_instance(snap)
        proposals = [TenantProposal(**each.model_dump()) for each in change.tenants]
        changed, stranded = proposed_instance(instance, proposals, change.devices)
        policy = present if change.policy is None else _share_policy(change.policy)
        now = outcome(instance, present, instance.cluster)
        then = outcome(changed, policy, instance.cluster)
        return msg.Consequences(
            policy_now=name,
            policy_then=change.policy or name,
            devices_now=instance.cluster.count_by_name(),
            devices_then=changed.cluster.count_by_name(),
            tenants=_tenants(now, then),
            jobs=_jobs(instance, now, then),
            stranded=stranded,
            trades=[trade_text(trade) for trade in then.trades[:_MAX_TRADES]],
        )

    question = "what-if", sha256(change.model_dump_json().encode()).digest()
    return await solve(server, question, "the changes cannot be computed now", compute)


@policy_room.get("/policy/names")
async def policy_names(principal: CurrentPrincipal) -> list[str]:
    """List the names of the installed policies, and of the mechanisms that need none."""
    del principal
    return await asyncio.to_thread(
        lambda: sorted({*available("policies"), *mechanisms_without_policy()})
    )


@policy_room.get("/policy/audit")
async def audit_policy(server: ContextDependency, principal: CurrentPrincipal) -> msg.PolicyAudit:
    """Measure the fairness and efficiency of the running policy on the present jobs."""
    principal.require("admin", "viewer")
    live = server.live
    policy, name = _present_policy(live), live.policy.config.policy
    _check_audited(current_snapshot(live))  # before the request waits for its turn

    def compute(snap: Snapshot) -> msg.PolicyAudit:
        _check_audited(snap)  # more may have come meanwhile
        instance = _present_instance(snap)
        if not instance.jobs:
            raise ProtocolError("no job can run now: nothing to audit")
        audited = audit(snapshot_of(instance), policy, name=name, solves=_SOLVES)
        return msg.PolicyAudit(
            policy=name,
            by=audited.participants.by,
            figures=[
                msg.AuditFigure(label=label, value=value, witness=witness)
                for label, value, witness in details(audited)
            ],
            compared_with=audited.participants.feasible_set,
        )

    return await solve(server, "audit", "the policy cannot be audited now", compute)


@policy_room.get("/policy/trades")
async def trades(server: ContextDependency, principal: CurrentPrincipal) -> list[msg.TradeView]:
    """Return the trades between tenants in words, newest first, if the policy lets them trade."""
    principal.require("admin", "viewer")
    live = server.live
    mechanism = live.scheduler.mechanism
    if isinstance(mechanism, SupportsTrades):
        made = mechanism.trades(
            live.scheduler.memory, live.queries.tenants, live.scheduler.cluster.accelerators
        )
        return [
            msg.TradeView(
                at=float(str(trade["at"])),
                text=f"{trade['seller']} gave {trade['slow_devices']:.4g} {trade['slow']} for"
                f" {trade['fast_devices']:.4g} {trade['fast']} of {trade['buyer']}"
                + ("; undone" if trade["undone"] else "; both gained"),
            )
            for trade in reversed(made[-_MAX_TRADES:])
        ]
    if not isinstance(mechanism, RealisesPolicy) or not len(live.scheduler.nodes.usable):
        return []
    policy = mechanism.policy

    def compute(snap: Snapshot) -> list[msg.TradeView]:
        instance = instance_of(snap)
        made = policy.allocate(snapshot_of(instance)).trades if instance.jobs else ()
        return [msg.TradeView(at=None, text=trade_text(trade)) for trade in made[:_MAX_TRADES]]

    return await solve(server, "trades", "the trades cannot be computed now", compute)


def _check_audited(snap: Snapshot) -> None:
    if (jobs := len(runnable_rows(snap))) > _MAX_AUDITED:
        problem = f"{jobs} jobs are too many for the server"
        raise ProtocolError(f"{problem}: `fairlead audit --live` audits them elsewhere")


def _present_policy(live: Live) -> Policy:
    mechanism = live.scheduler.mechanism
    if not isinstance(mechanism, RealisesPolicy):
        raise _no_shares(live.policy.config.policy or live.policy.config.mechanism_label)
    return mechanism.policy


def _share_policy(text: str) -> Policy:
    if text.partition(":")[0] in mechanisms_without_policy():
        raise _no_shares(text)
    return create_policy(text)


def _no_shares(name: str) -> ProtocolError:
    return ProtocolError(f"{name} computes no shares, so there are none to compare")


def _present_instance(snap: Snapshot) -> Instance:
    if not len(snap.usable):
        raise ProtocolError("no node is up")
    return instance_of(snap)


def _tenants(now: Outcome, then: Outcome) -> list[msg.TenantConsequence]:
    names = sorted({*now.tenant_speed, *then.tenant_speed})
    return [
        msg.TenantConsequence(
            tenant=name,
            devices_now=dict(now.tenant_devices.get(name, {})),
            devices_then=dict(then.tenant_devices.get(name, {})),
            speed_now=now.tenant_speed.get(name, 0.0),
            speed_then=then.tenant_speed.get(name, 0.0),
        )
        for name in names
    ]


def _jobs(instance: Instance, now: Outcome, then: Outcome) -> list[msg.JobConsequence]:
    """Return the jobs' speeds; those that could no longer run have speed 0."""
    return [
        msg.JobConsequence(
            id=job.id,
            tenant=job.tenant,
            now=now.job_speed.get(job.id, 0.0) if now.job_speed else None,
            then=then.job_speed.get(job.id, 0.0) if then.job_speed else None,
        )
        for job in instance.jobs
    ]
