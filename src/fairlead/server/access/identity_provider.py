"""Signing keys of an OpenID Connect provider, fetched off the event loop and cached."""

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, build_opener

import structlog

from fairlead.engines.plugin import LOOPBACK
from fairlead.model.errors import FairleadError

if TYPE_CHECKING:
    from jwt import PyJWK

log = structlog.get_logger("fairlead.oidc")

_FETCH_S = 10.0
"""timeout of one request to the provider"""
_RETRY_S = 5.0
"""time between two fetches: unknown key ids and failures cause no more"""
_FRESH_S = 300.0
"""age after which keys are fetched again, so that withdrawn ones stop being valid"""
_MAX_AGE_S = 3600.0
"""age up to which keys are used while the provider does not answer"""
_MAX_BYTES = 1 << 20
_MAX_KEYS = 100
DISCOVERY = "/.well-known/openid-configuration"


class ProviderError(FairleadError):
    """The OpenID Connect provider does not answer, or its answer is invalid."""

    code = "provider"


class ProviderKeys:
    """Keys of one provider by their ids; one fetch at a time."""

    def __init__(self, issuer: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._issuer, self._clock = issuer, clock
        self._keys: Mapping[str, PyJWK] = {}
        self._fetched_at = self._tried_at = -1e18
        self._problem = "not asked yet"
        self._fetch: asyncio.Future[Mapping[str, PyJWK]] | None = None

    async def key(self, key_id: str | None) -> "PyJWK | None":
        """Return the key with an id, None if the provider has none.

        Without an id, return the only key. Raises ProviderError if no keys are known.
        """
        now = self._clock()
        if now - self._fetched_at > _FRESH_S or not self._has(key_id):
            await self._refresh(now)
        if self._clock() - self._fetched_at > _MAX_AGE_S:
            raise ProviderError(f"OpenID Connect provider {self._issuer}: {self._problem}")
        if key_id is None:
            return next(iter(self._keys.values())) if len(self._keys) == 1 else None
        return self._keys.get(key_id)

    async def newer_key(self, key_id: str | None) -> "PyJWK | None":
        """Fetch the keys again, for a provider that reuses or omits ids; return the key."""
        await self._refresh(self._clock())
        return await self.key(key_id)

    def _has(self, key_id: str | None) -> bool:
        return key_id in self._keys or (key_id is None and bool(self._keys))

    async def _refresh(self, now: float) -> None:
        """Fetch the keys unless that was tried just now; keep the old ones if it fails."""
        if self._fetch is None:
            if now - self._tried_at < _RETRY_S:
                return
            self._tried_at = now
            self._fetch = asyncio.ensure_future(asyncio.to_thread(fetch_keys, self._issuer))
            self._fetch.add_done_callback(self._store)
        # A provider that sends single bytes holds one thread and no request.
        await asyncio.wait({self._fetch}, timeout=2 * _FETCH_S)

    def _store(self, fetch: "asyncio.Future[Mapping[str, PyJWK]]") -> None:
        self._fetch = None
        if fetch.cancelled():
            return
        if (error := fetch.exception()) is not None:
            self._problem = str(error)
            log.warning("oidc.keys_failed", issuer=self._issuer, problem=self._problem)
            return
        self._keys, self._fetched_at = fetch.result(), self._clock()


def fetch_keys(issuer: str) -> "Mapping[str, PyJWK]":
    """Return the provider's signing keys by id."""
    from jwt import PyJWK, PyJWTError  # noqa: PLC0415  # optional dependency

    uri = discover(issuer).get("jwks_uri")
    if not isinstance(uri, str) or not is_safe_url(uri):
        raise ProviderError("jwks_uri: expected an https URL")
    listed = fetch_json(uri).get("keys")
    keys: dict[str, PyJWK] = {}
    for number, entry in enumerate(listed if isinstance(listed, list) else []):
        if number >= _MAX_KEYS or not isinstance(entry, dict) or entry.get("use") == "enc":
            continue
        if entry.get("kty") not in ("RSA", "EC"):
            continue  # a shared secret would let its readers sign
        try:
            keys[str(entry.get("kid", ""))] = PyJWK(entry)
        except (PyJWTError, ValueError, TypeError):
            continue
    if not keys:
        raise ProviderError(f"{uri}: has no RSA or EC keys")
    return keys


def discover(issuer: str) -> dict[str, Any]:
    """Return the provider's configuration; raise ProviderError unless it is that of the issuer."""
    document = fetch_json(issuer.rstrip("/") + DISCOVERY)
    if document.get("issuer") != issuer:
        raise ProviderError(f"names the issuer {document.get('issuer')!r}: expected {issuer!r}")
    return document


def is_safe_url(url: str) -> bool:
    """Return whether answers from a URL can be trusted: https, or http on this machine."""
    try:
        parts = urlsplit(url)
        return bool(parts.hostname) and (
            parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in LOOPBACK)
        )
    except ValueError:
        return False


class _NoRedirects(HTTPRedirectHandler):
    """Follows no redirects, which could lead from https to http."""

    def redirect_request(self, *_: Any) -> None:
        return None


def fetch_json(url: str, body: bytes | None = None) -> dict[str, Any]:
    """Return the JSON object at a URL; raise ProviderError with the reason."""
    try:
        with build_opener(_NoRedirects()).open(url, body, timeout=_FETCH_S) as answer:
            text = answer.read(_MAX_BYTES + 1)
        document = json.loads(text) if len(text) <= _MAX_BYTES else None
    except HTTPError as error:
        with error:
            detail = error.read(500).decode("utf-8", "replace").strip()
        raise ProviderError(f"{url}: status {error.code}: {detail}") from None
    except OSError as error:
        raise ProviderError(f"{url} does not answer ({getattr(error, 'reason', error)})") from None
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise ProviderError(f"{url}: answer is not a JSON object of at most {_MAX_BYTES} bytes")
    return document
