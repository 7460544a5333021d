"""The objects of one running server that its routes work on."""

import asyncio
from dataclasses import dataclass, field

from fastapi import Request

from fairlead.code_snapshot.location import SnapshotLimits
from fairlead.live.driver import Live
from fairlead.server.access.denials import DeniedAttempts
from fairlead.server.access.live_limits import LiveLimits
from fairlead.server.access.oidc import OidcLogin, looks_signed
from fairlead.server.access.rate_limits import RateLimiters
from fairlead.server.access.secrets import JobSecrets
from fairlead.server.access.tokens import Principal, Tokens
from fairlead.server.api.job_list import RecentPages
from fairlead.server.code_snapshots import CodeSnapshots
from fairlead.server.shared_answers import SharedAnswers
from fairlead.server.simulations.runs import SimulationRuns


@dataclass(slots=True)
class ServerInfo:
    """Settings that users of the server may see; a reload may change them."""

    separates_tenants: bool = True
    """jobs of several tenants may run here"""
    create_tenants: bool = False
    """a submission creates the tenant that it names"""


@dataclass(frozen=True, slots=True)
class ServerContext:
    """One running server."""

    live: Live
    tokens: Tokens
    rate_limiters: RateLimiters
    info: ServerInfo
    secrets: JobSecrets = field(default_factory=JobSecrets.empty)
    denied_attempts: DeniedAttempts | None = None
    oidc: OidcLogin | None = None
    answers: SharedAnswers = field(default_factory=SharedAnswers)
    """answers that policies have computed"""
    verifying: asyncio.Lock = field(default_factory=asyncio.Lock)
    """one check of the audit trail at a time"""
    drawing: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(2))
    """two timelines at a time: five weeks of a large cluster take hundreds of megabytes"""
    snapshot_limits: SnapshotLimits = field(default_factory=SnapshotLimits)
    recent_pages: RecentPages = field(default_factory=RecentPages)
    simulations: SimulationRuns = field(init=False)

    def __post_init__(self) -> None:
        simulations = SimulationRuns(self.live.config.data)
        object.__setattr__(self, "simulations", simulations)  # depends on another field

    @property
    def live_limits(self) -> LiveLimits:
        """The rate limits, which operators may change."""
        return LiveLimits(self.live, self.rate_limiters)

    @property
    def code_snapshots(self) -> CodeSnapshots:
        """The code snapshots that tenants have uploaded."""
        return CodeSnapshots(self.live, self.snapshot_limits)

    async def authenticate(self, text: str) -> Principal:
        """Return the owner of a bearer token; AuthError if it is not valid."""
        if self.oidc is not None and looks_signed(text):
            return await self.oidc.authenticate(text)
        return self.tokens.authenticate(text, self.live.clock.now())


def context_of(request: Request) -> ServerContext:
    """Return the server that a request was sent to."""
    context: ServerContext = request.app.state.context
    return context
