"""Forged and unsuitable tokens of an OpenID Connect provider, and a provider that fails."""

import asyncio
import base64
import contextlib
import hashlib
import hmac
import json
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.attacks.access.signing_provider import (
    AUDIENCE,
    SigningProvider,
    new_ec,
    new_rsa,
    public_pem,
    signing_provider,
)
from tests.support.waiting import eventually

from fairlead.server.access import identity_provider
from fairlead.server.access.identity_provider import ProviderError, ProviderKeys
from fairlead.server.access.oidc import OidcConfig, OidcLogin
from fairlead.server.access.tokens import AuthError, Principal


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(scope="module")
def provider() -> Iterator[SigningProvider]:
    with signing_provider() as made:
        yield made


def config_of(issuer: str) -> OidcConfig:
    return OidcConfig(
        issuer=issuer,
        client_id=AUDIENCE,
        audience=AUDIENCE,
        admin_group="ops",
        viewer_group="staff",
    )


def login_with(
    provider: SigningProvider, *texts: str, clock: Callable[[], float] = time.monotonic
) -> Principal:
    login = OidcLogin(config_of(provider.issuer), ProviderKeys(provider.issuer, clock))

    async def authenticate() -> Principal:
        for text in texts[:-1]:
            with pytest.raises(AuthError):
                await login.authenticate(text)
        return await login.authenticate(texts[-1])

    return asyncio.run(authenticate())


def test_claims_give_a_role_and_a_tenant(provider: SigningProvider) -> None:
    user = login_with(provider, provider.token(tenant="vision", preferred_username="ann"))
    assert (user.name, user.role, user.tenant, user.id) == ("ann", "tenant", "vision", "oidc:u1")
    admin = login_with(provider, provider.token(groups=["x", "ops"], tenant="vision"))
    assert (admin.role, admin.tenant) == ("admin", None)
    assert login_with(provider, provider.token(groups=["staff"])).role == "viewer"
    several = provider.token(aud=["other", AUDIENCE], tenant="vision")
    assert login_with(provider, several).role == "tenant"


def encode(part: object) -> bytes:
    return base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=")


def signed_with_secret(provider: SigningProvider, secret: bytes) -> str:
    """Return a token signed by HMAC with a secret that any client knows: the public key."""
    claims = json.loads(base64.urlsafe_b64decode(provider.token(tenant="x").split(".")[1] + "=="))
    text = encode({"alg": "HS256", "kid": "rsa-1"}) + b"." + encode(claims)
    digest = hmac.new(secret, text, hashlib.sha256).digest()
    return (text + b"." + base64.urlsafe_b64encode(digest).rstrip(b"=")).decode()


def unsigned(provider: SigningProvider, algorithm: str) -> str:
    body = provider.token(tenant="x").split(".")[1]
    return f"{encode({'alg': algorithm, 'kid': 'rsa-1'}).decode()}.{body}."


def with_own_key(provider: SigningProvider) -> str:
    key = new_rsa()
    header = {"kid": "evil", "jwk": {"kty": "RSA"}, "jku": "http://127.0.0.1:1/", "x5u": "x"}
    return provider.token(key=key, headers=header, tenant="x")


def in_s(seconds: int) -> int:
    """Return the time in some seconds; tests may run long after they were collected."""
    return int(time.time()) + seconds


Forge = Callable[[SigningProvider], str]
FORGED: dict[str, tuple[Forge, str]] = {
    "wrong key": (lambda p: p.token(key=new_rsa(), tenant="x"), "Signature"),
    "own key in the header": (with_own_key, "unknown key"),
    "other audience": (lambda p: p.token(aud="other", tenant="x"), "Audience"),
    "no audience": (lambda p: p.token(aud=None, tenant="x"), "aud"),
    "other issuer": (lambda p: p.token(iss="http://evil", tenant="x"), "issuer"),
    "expired": (lambda p: p.token(exp=in_s(-120), tenant="x"), "expired"),
    "never expires": (lambda p: p.token(exp=None, tenant="x"), "exp"),
    "not valid yet": (lambda p: p.token(nbf=in_s(900), tenant="x"), "not yet valid"),
    "issued in the future": (lambda p: p.token(iat=in_s(900), tenant="x"), "not yet valid"),
    "no subject": (lambda p: p.token(sub=None, tenant="x"), "sub"),
    "subject for the terminal": (lambda p: p.token(sub="a\x1b[2J", tenant="x"), "sub"),
    "subject with NUL": (lambda p: p.token(sub="a\x00", tenant="x"), "sub"),
    "half a character as subject": (lambda p: p.token(sub="\ud800", tenant="x"), "sub"),
    "alg none": (lambda p: unsigned(p, "none"), "signature"),
    "alg None": (lambda p: unsigned(p, "nOnE"), "signature"),
    "HS256 with the public key": (
        lambda p: signed_with_secret(p, public_pem(p.keys["rsa-1"])),
        "signature",
    ),
    "EC signature for an RSA key": (
        lambda p: p.token(key=new_ec(), algorithm="ES256", tenant="x"),
        "token",
    ),
    "path as key id": (
        lambda p: p.token(headers={"kid": "../../../../dev/null"}, tenant="x"),
        "unknown key",
    ),
    "SQL as key id": (
        lambda p: p.token(headers={"kid": "x' UNION SELECT 'key"}, tenant="x"),
        "unknown key",
    ),
    "huge key id": (lambda p: p.token(headers={"kid": "x" * 9000}, tenant="x"), "key id"),
    "huge token": (lambda p: p.token(tenant="x" * 20_000), "16384 bytes"),
    "deep header": (
        lambda _: base64.urlsafe_b64encode(b"[" * 10_000).decode() + ".e30.",
        "token",
    ),
    "no JSON": (lambda _: "a.b.c", "token"),
    "empty": (lambda _: "..", "token"),
}


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_token_is_refused(provider: SigningProvider, name: str) -> None:
    forge, problem = FORGED[name]
    with pytest.raises(AuthError, match=problem) as caught:
        login_with(provider, forge(provider))
    assert not caught.value.known
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    "claims",
    [
        {},
        {"tenant": ""},
        {"tenant": ["vision"]},
        {"tenant": "a\nb"},
        {"tenant": "\ud800"},
        {"tenant": 7},
        {"groups": "ops"},
        {"groups": {"ops": 1}},
        {"groups": ["OPS"]},
    ],
)
def test_claims_without_a_valid_role_are_refused(
    provider: SigningProvider, claims: dict[str, Any]
) -> None:
    with pytest.raises(AuthError, match="expected a tenant, or a group") as caught:
        login_with(provider, provider.token(**claims))
    assert caught.value.known


def test_new_keys_are_found_and_withdrawn_ones_refused() -> None:
    with signing_provider() as provider:
        clock = Clock()
        keys = ProviderKeys(provider.issuer, clock)
        login = OidcLogin(config_of(provider.issuer), keys)

        async def rotate() -> None:
            old = provider.token(tenant="x")
            assert (await login.authenticate(old)).tenant == "x"
            fresh = new_ec()
            provider.keys = {"ec-2": fresh}
            signed = provider.token(
                key=fresh, algorithm="ES256", headers={"kid": "ec-2"}, tenant="y"
            )
            clock.now += 10
            assert (await login.authenticate(signed)).tenant == "y"
            with pytest.raises(AuthError, match="unknown key"):
                await login.authenticate(old)

        asyncio.run(rotate())


def test_unknown_key_ids_cause_few_requests_to_the_provider() -> None:
    with signing_provider() as provider:
        clock = Clock()
        forged = [provider.token(headers={"kid": f"k{i}"}, tenant="x") for i in range(50)]
        login_with(provider, *forged, provider.token(tenant="x"), clock=clock)
        assert provider.requests <= 4  # discovery and keys, at most twice


def test_a_provider_that_is_down_gives_a_clear_error_and_known_keys_go_on_working() -> None:
    clock = Clock()
    with signing_provider() as provider:
        keys = ProviderKeys(provider.issuer, clock)
        login = OidcLogin(config_of(provider.issuer), keys)
        token = provider.token(tenant="x")
        assert asyncio.run(login.authenticate(token)).tenant == "x"
    clock.now += 600
    assert asyncio.run(login.authenticate(token)).tenant == "x"
    clock.now += 3600
    with pytest.raises(ProviderError, match=r"provider http://127.* does not answer"):
        asyncio.run(login.authenticate(token))


def test_a_silent_provider_blocks_neither_the_loop_nor_later_requests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(identity_provider, "_FETCH_S", 60.0)
    with signing_provider() as signing, socket.create_server(("127.0.0.1", 0)) as silent:
        issuer = f"http://127.0.0.1:{silent.getsockname()[1]}"
        login = OidcLogin(config_of(issuer), ProviderKeys(issuer, Clock()))
        token = signing.token(tenant="x")

        async def attack() -> None:
            attempts = (login.authenticate(token) for _ in range(20))
            waiting = asyncio.gather(*attempts, return_exceptions=True)
            await eventually(lambda: _connections(silent))  # closes the only one
            for result in await waiting:
                assert isinstance(result, ProviderError)
                assert "timed out" not in str(result), "the loop was blocked"
            with pytest.raises(ProviderError):  # fails at once: the last attempt was just now
                await login.authenticate(token)
            assert _connections(silent) == 0

        asyncio.run(attack())


def test_a_silent_provider_is_not_waited_for_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity_provider, "_FETCH_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        issuer = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(ProviderError, match="does not answer"):
            identity_provider.fetch_keys(issuer)


def _connections(listening: socket.socket) -> int:
    """Return the number of connections since the last time."""
    listening.setblocking(False)
    count = 0
    with contextlib.suppress(BlockingIOError):
        while True:
            listening.accept()[0].close()
            count += 1
    return count


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (b"not JSON", "not a JSON object"),
        (b"[" * 100_000, "not a JSON object"),
        (b"[]", "not a JSON object"),
        (b" " * (2 << 20), "not a JSON object"),
        (b'{"issuer": "http://other"}', "names the issuer"),
        (b'{"issuer": "ISSUER", "jwks_uri": "http://evil.example/"}', "jwks_uri"),
        (b'{"issuer": "ISSUER", "jwks_uri": "file:///etc/passwd"}', "jwks_uri"),
        (b'{"issuer": "ISSUER", "jwks_uri": "ISSUER/oct"}', "no RSA or EC keys"),
    ],
)
def test_invalid_answers_of_a_provider_are_refused(
    provider: SigningProvider, monkeypatch: pytest.MonkeyPatch, answer: bytes, problem: str
) -> None:
    secret = b'{"keys": [{"kty": "oct", "k": "c2VjcmV0", "kid": "rsa-1"}, 3, null]}'
    body = answer.replace(b"ISSUER", provider.issuer.encode())
    monkeypatch.setattr(provider, "answer", lambda path: secret if path == "/oct" else body)
    with pytest.raises(ProviderError, match=problem):
        login_with(provider, provider.token(tenant="x"))
