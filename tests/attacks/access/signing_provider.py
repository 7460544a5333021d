"""A provider's discovery document and keys over HTTP, with the private keys in a test's hands."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey
AUDIENCE = "fairlead"


class SigningProvider:
    """Answers requests for keys; tests sign tokens with any key and any header."""

    def __init__(self) -> None:
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                provider.requests += 1
                body = provider.answer(self.path)
                self.send_response(200 if body else 404)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self.requests = 0
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.issuer = f"http://127.0.0.1:{self._server.server_port}"
        self.keys: dict[str, PrivateKey] = {"rsa-1": new_rsa()}
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def answer(self, path: str) -> bytes:
        if path == "/jwks":
            return json.dumps({"keys": [as_jwk(*item) for item in self.keys.items()]}).encode()
        if path == "/.well-known/openid-configuration":
            jwks_uri = f"{self.issuer}/jwks"
            return json.dumps({"issuer": self.issuer, "jwks_uri": jwks_uri}).encode()
        return b""

    def token(
        self,
        *,
        key: Any = None,
        algorithm: str = "RS256",
        headers: dict[str, Any] | None = None,
        **claims: Any,
    ) -> str:
        now = int(time.time())
        body = {"iss": self.issuer, "aud": AUDIENCE, "sub": "u1", "iat": now, "exp": now + 300}
        body = {name: each for name, each in (body | claims).items() if each is not None}
        header = {"kid": "rsa-1"} if headers is None else headers
        signing = self.keys["rsa-1"] if key is None else key
        return jwt.encode(body, signing, algorithm, headers=header)

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def new_rsa() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def new_ec() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def as_jwk(key_id: str, key: PrivateKey) -> dict[str, Any]:
    public: Any = key.public_key()
    text = (
        RSAAlgorithm.to_jwk(public)
        if isinstance(key, rsa.RSAPrivateKey)
        else ECAlgorithm.to_jwk(public)
    )
    return {**json.loads(text), "kid": key_id, "use": "sig"}


def public_pem(key: PrivateKey) -> bytes:
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


@contextmanager
def signing_provider() -> Iterator[SigningProvider]:
    provider = SigningProvider()
    try:
        yield provider
    finally:
        provider.stop()
