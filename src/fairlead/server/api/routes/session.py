"""Routes for sessions of browsers: log in with a token, show its owner, log out."""

from fastapi import APIRouter, Request, Response

from fairlead.server.access.authorization import (
    ContextDependency,
    KnownPrincipal,
    count_failed_login,
)
from fairlead.server.access.sessions import SESSION_S, cookie_name, seal
from fairlead.server.access.tokens import AuthError, Principal
from fairlead.server.api.session_messages import NewSession, SessionView

session = APIRouter(prefix="/v1/session", tags=["access"])


@session.post("", status_code=201)
async def log_in(
    new: NewSession, request: Request, response: Response, server: ContextDependency
) -> SessionView:
    """Start a session of a browser: the token, encrypted, becomes a cookie.

    Later requests send the cookie and, in the header Fairlead-Key, the key of this response.
    """
    try:
        principal = await server.authenticate(new.token.strip())
    except AuthError as error:
        raise count_failed_login(request, error) from None
    server.rate_limiters.requests.take(principal.id)
    sealed = seal(new.token.strip())
    response.set_cookie(
        cookie_name(request),
        sealed.cookie,
        max_age=SESSION_S,
        path="/v1",
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="strict",
    )
    response.headers["Cache-Control"] = "no-store"
    return _view(principal).model_copy(update={"key": sealed.key})


@session.get("")
async def show(principal: KnownPrincipal) -> SessionView:
    """Show the owner of the token; every token may ask, whatever its scopes."""
    return _view(principal)


@session.delete("", status_code=204)
async def log_out(request: Request, response: Response) -> None:
    """Remove the cookie of a session from the browser; the token stays valid."""
    response.delete_cookie(cookie_name(request), path="/v1", httponly=True, samesite="strict")


def _view(principal: Principal) -> SessionView:
    return SessionView(
        name=principal.name,
        role=principal.role,
        tenant=principal.tenant,
        sees=[*principal.sees],
        scopes=sorted(principal.scopes),
    )
