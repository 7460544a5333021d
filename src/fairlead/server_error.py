"""Errors of requests to a server: it rejected one, or it cannot be reached."""

import json

from fairlead.model.errors import FairleadError

_STOPPING = "stopping"


class ServerError(FairleadError):
    """The server rejected a request, with the code of its error; or it cannot be reached."""

    code = "server"

    def __init__(self, message: str, code: str = "server") -> None:
        super().__init__(message)
        self.code = code


class UnreachableError(ServerError):
    """The server did not answer, or stopped before it had answered."""


class UntrustedCertificateError(ServerError):
    """The server's certificate is not accepted; has the problem and the fix."""

    def __init__(self, problem: str, fix: str) -> None:
        super().__init__(f"{problem}; {fix}")
        self.problem, self.fix = problem, fix


def error_of(status: int, text: bytes) -> ServerError:
    """Return the error of a rejected request, with the server's message if it has one."""
    try:
        error = json.loads(text)["error"]
        made = UnreachableError if error["code"] == _STOPPING else ServerError
        return made(str(error["message"]), str(error["code"]))
    except (ValueError, KeyError, TypeError):
        return ServerError(f"server: status {status}")
