"""Login at an OpenID Connect provider: authorization code with PKCE, answered on loopback."""

import base64
import hashlib
import json
import os
import secrets
import threading
import time
import webbrowser
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import typer

from fairlead.model.errors import FairleadError
from fairlead.server.access.identity_provider import (
    ProviderError,
    discover,
    fetch_json,
    is_safe_url,
)

SECRET_VARIABLE = "FAIRLEAD_OIDC_CLIENT_SECRET"
"""client secret, for providers that demand one even of programs on users' machines"""
_WAIT_S = 300.0
_PAGE = b"<!doctype html><title>Fairlead</title><p>Logged in. You can close this page."


class LoginError(FairleadError):
    """A login at an OpenID Connect provider failed."""

    code = "login"


class _Redirected(HTTPServer):
    """Waits on loopback for the redirect that ends a login."""

    def __init__(self, state: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.state, self.timeout = state, 1.0
        self.answer: dict[str, str] | None = None


class _Handler(BaseHTTPRequestHandler):
    server: _Redirected
    timeout = 10

    def do_GET(self) -> None:
        """Take the answer of the login that this process has begun; ignore other requests."""
        parts = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        valid = parts.path == "/callback" and secrets.compare_digest(
            query.get("state", "").encode(), self.server.state.encode()
        )
        self.send_response(200 if valid else 404)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        if valid:
            self.server.answer = query
            self.wfile.write(_PAGE)

    def log_message(self, *_: object) -> None:
        """Write no log: it would hold the code."""


def log_in(provider: dict[str, Any]) -> str:
    """Return the ID token of a user who logs in at the provider in a browser."""
    issuer, client_id = str(provider["issuer"]), str(provider["client_id"])
    if not is_safe_url(issuer):
        raise LoginError(f"{issuer}: expected an https URL")
    config = discover(issuer)
    verifier, state = secrets.token_urlsafe(48), secrets.token_urlsafe(24)
    nonce = secrets.token_urlsafe(24)
    digest = hashlib.sha256(verifier.encode()).digest()
    with _Redirected(state) as server:
        redirect = f"http://127.0.0.1:{server.server_port}/callback"
        page = _endpoint(config, "authorization_endpoint") + "?" + urlencode(
            {
                "response_type": "code",
                "client_id": client_id,
                "redirect_uri": redirect,
                "scope": "openid profile email",
                "state": state,
                "nonce": nonce,
                "code_challenge": base64.urlsafe_b64encode(digest).rstrip(b"=").decode(),
                "code_challenge_method": "S256",
            }
        )  # fmt: skip
        typer.echo(f"Log in at {page}", err=True)
        # A browser in the terminal returns only after the redirect that this process answers.
        threading.Thread(target=webbrowser.open, args=(page,), daemon=True).start()
        answer = _wait(server)
    if "code" not in answer:
        reason = answer.get("error_description") or answer.get("error", "no code")
        raise LoginError(f"{issuer} refused the login: {reason}")
    form = {
        "grant_type": "authorization_code",
        "code": answer["code"],
        "redirect_uri": redirect,
        "client_id": client_id,
        "code_verifier": verifier,
    }
    if secret := os.environ.get(SECRET_VARIABLE):
        form["client_secret"] = secret
    tokens = fetch_json(_endpoint(config, "token_endpoint"), urlencode(form).encode())
    return _id_token(tokens, nonce)


def _endpoint(config: dict[str, Any], name: str) -> str:
    url = config.get(name)
    if not isinstance(url, str) or not is_safe_url(url):
        raise ProviderError(f"{name}: expected an https URL")
    return url


def _wait(server: _Redirected) -> dict[str, str]:
    until = time.monotonic() + _WAIT_S
    while server.answer is None:
        if time.monotonic() > until:
            raise LoginError(f"no answer from the browser within {_WAIT_S:.0f} s")
        server.handle_request()
    return server.answer


def _id_token(tokens: dict[str, Any], nonce: str) -> str:
    """Return the ID token of an answer; the server checks its signature."""
    token = tokens.get("id_token")
    if not isinstance(token, str) or token.count(".") != 2:
        raise LoginError("the provider sent no ID token: expected the scope openid to give one")
    body = token.split(".")[1]
    try:
        claims = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
    except ValueError:
        raise LoginError("the provider sent an unreadable ID token") from None
    if not isinstance(claims, dict) or claims.get("nonce") != nonce:
        raise LoginError("the ID token belongs to another login: try again")
    return token
