"""A real OpenID Connect provider as a process on loopback (oidc-provider-mock)."""

import contextlib
import json
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import parse_qs, urlencode, urlsplit
from urllib.request import urlopen

BROWSER = """
import sys, urllib.parse, urllib.request
body = urllib.parse.urlencode({"sub": sys.argv[1]}).encode()
urllib.request.urlopen(sys.argv[2], body, timeout=60).read()
"""


class OidcProvider:
    """Starts and stops the provider; a new start on the same port has new signing keys."""

    def __init__(self, root: Path, *users: dict[str, Any]) -> None:
        self._root, self._users = root, users
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.issuer = f"http://127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "oidc_provider_mock", "--port", str(self.port)]
        for user in self._users:
            command += ["--user-claims", json.dumps(user)]
        with (self._root / "provider.log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        until = time.monotonic() + 90
        while time.monotonic() < until:
            with contextlib.suppress(URLError, OSError):
                urlopen(f"{self.issuer}/.well-known/openid-configuration", timeout=5).close()
                self._load()
                return
            assert self._process.poll() is None, (self._root / "provider.log").read_text()
            time.sleep(0.05)
        raise AssertionError("the provider did not start")

    def _load(self) -> None:
        """Request a token in vain: the provider loads now what the first login would wait for."""
        with contextlib.suppress(HTTPError):
            urlopen(f"{self.issuer}/oauth2/token", b"", timeout=60).close()

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def browser(self, user: str) -> str:
        """Return a value of BROWSER with which a user logs in."""
        script = self._root / "browser.py"
        script.write_text(BROWSER)
        return f"{sys.executable} {script} {user} %s"


def answer_page(page: str, user: str | None) -> None:
    """Log a user in on the provider's page as a browser does; None denies the login."""
    if user is not None:
        urlopen(page, urlencode({"sub": user}).encode(), timeout=60).close()
        return
    query = parse_qs(urlsplit(page).query)
    callback, state = query["redirect_uri"][0], query["state"][0]
    with contextlib.suppress(HTTPError):  # an attacker's answer, which is ignored
        urlopen(f"{callback}?code=stolen&state=guessed", timeout=60).close()
    urlopen(f"{callback}?error=access_denied&state={state}", timeout=60).close()
