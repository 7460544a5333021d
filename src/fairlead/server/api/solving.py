"""Requests that policies answer: beside the event loop, one at a time, equal ones only once."""

from collections.abc import Callable, Hashable
from typing import TypeVar

import structlog

from fairlead.model.errors import InputError, ProtocolError, SolveError, UsageError
from fairlead.model.snapshot import Snapshot
from fairlead.server.context import ServerContext

T = TypeVar("T")
log = structlog.get_logger("fairlead.server")


async def solve(
    server: ServerContext, question: Hashable, failure: str, compute: Callable[[Snapshot], T]
) -> T:
    """Return a result for the current state; a ProtocolError with ``failure`` if a policy fails.

    ``question`` holds all that the result depends on besides the state, such as the tenants that
    the principal may see. Errors in the request itself, which are InputError and UsageError, stay.
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

    answer: T = await server.answers.get(server.live, question, guarded)
    return answer
