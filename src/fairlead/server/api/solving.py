"""Requests that policies answer: one at a time and beside the event loop."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

import structlog

from fairlead.model.errors import InputError, ProtocolError, SolveError, UsageError
from fairlead.model.snapshot import Snapshot
from fairlead.server.api.live_instance import current_snapshot
from fairlead.server.context import ServerContext

T = TypeVar("T")
log = structlog.get_logger("fairlead.server")


async def solve(server: ServerContext, failure: str, compute: Callable[[Snapshot], T]) -> T:
    """Return a result for the current state; a ProtocolError with ``failure`` if a policy fails.

    Errors in the request itself, which are InputError and UsageError, stay. Requests that wait
    have no snapshot yet: many of them take little memory.
    """

    def guarded(snap: Snapshot) -> T:
        try:
            return compute(snap)
        except (InputError, UsageError, ProtocolError):
            raise
        except SolveError as error:
            raise ProtocolError(f"{failure}: {error}") from None
        except (Exception, SystemExit) as error:  # of a policy of another package
            log.error("policy.failed", request=failure, error=repr(error))
            problem = f"the policy failed with {type(error).__name__}; see the server's log"
            raise ProtocolError(f"{failure}: {problem}") from error

    async with server.explaining:
        return await asyncio.to_thread(guarded, current_snapshot(server.live))
