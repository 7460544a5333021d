"""Routes for the scheduling policy of the running server."""

import asyncio

from fastapi import APIRouter

from fairlead.live.driver import Live
from fairlead.mechanisms.base import HasRounds
from fairlead.server.access.authorization import CurrentPrincipal, LiveDependency
from fairlead.server.access.tokens import Principal
from fairlead.server.api.policy_messages import PolicyChange, PolicyView
from fairlead.server.config.scheduling import changed_scheduling_config

policy = APIRouter(prefix="/v1/policy", tags=["policy"])


@policy.get("")
async def show_policy(live: LiveDependency, principal: CurrentPrincipal) -> PolicyView:
    """Show the policy, mechanism, round and speeds in force."""
    return _view(live, principal)


@policy.put("")
async def set_policy(
    change: PolicyChange, live: LiveDependency, principal: CurrentPrincipal
) -> PolicyView:
    """Change the policy in a round that starts now; running jobs keep their devices until then.

    For admins. Refused, without effect, if a job that has not ended could never run.
    """
    principal.require("admin")
    before = live.policy.config
    # Plug-ins are imported and speeds are parsed, so not on the event loop.
    config = await asyncio.to_thread(
        changed_scheduling_config,
        before,
        policy=change.policy,
        mechanism=change.mechanism,
        round_s=change.round_s,
        weight_scope=change.weight_scope,
        speeds=change.speeds,
    )
    await live.policy.request(before, config, principal.actor)
    return _view(live, principal)


def _view(live: Live, principal: Principal) -> PolicyView:
    config, change = live.policy.config, live.policy.change
    mechanism = config.mechanism
    named = principal.role in ("admin", "viewer")
    return PolicyView(
        policy=config.policy,
        mechanism=config.mechanism_label,
        round_s=mechanism.round_s if isinstance(mechanism, HasRounds) else None,
        weight_scope=config.weight_scope,
        speeds=config.speeds_label,
        set_by="start" if change is None else "live",
        changed_at=None if change is None else change.at,
        changed_by=change.by if change is not None and named else None,
    )
