"""Route for the running round."""

from fastapi import APIRouter

from fairlead.server.access.authorization import CurrentPrincipal, LiveDependency
from fairlead.server.api.rounds.messages import RoundView
from fairlead.server.api.rounds.views import round_view

rounds = APIRouter(prefix="/v1", tags=["insight"])


@rounds.get("/round")
async def show_round(live: LiveDependency, principal: CurrentPrincipal) -> RoundView:
    """Show the end of the running round, and the jobs that start, stop or move then.

    The changes are known from the time at which the plan of the next round is made, a quarter of
    the round and at most 30 s before its end. Tenants see the jobs that they may see.
    """
    return round_view(live, principal.can_see)
