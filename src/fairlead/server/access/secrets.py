"""Secrets that tenants store for their jobs, sealed with the key of the data directory."""

import base64
import hashlib
import json
import os
import secrets
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import structlog

from fairlead.atomic_file import replace_text
from fairlead.model.errors import FairleadError, InputError
from fairlead.model.submission.secrets import check_secret_name
from fairlead.store import Change, Put, Remove

log = structlog.get_logger("fairlead.secrets")

KEY_FILE = "secrets.key"
KIND = "job-secret"
"""kind of the store's documents"""
MAX_BYTES = 32_768
MAX_PER_TENANT = 100
_KEY_BYTES, _NONCE_BYTES = 32, 12


class SecretUnavailableError(FairleadError):
    """A secret was removed, or sealed with a key that the server does not have."""

    code = "missing"


@dataclass(frozen=True, slots=True)
class StoredSecret:
    """A secret as it is stored."""

    tenant: str
    name: str
    created_at: float
    changed_at: float
    key_id: str
    """identifies the key, not its content"""
    sealed: str
    """nonce and AES-256-GCM ciphertext, in base64"""


def read_secret(document: str) -> StoredSecret:
    """Return a stored secret."""
    return StoredSecret(**json.loads(document))


class JobSecrets:
    """All secrets; the caller persists the changes."""

    def __init__(self, documents: Mapping[str, str], key: bytes) -> None:
        stored = map(read_secret, documents.values())
        self._stored = {(secret.tenant, secret.name): secret for secret in stored}
        self._key = key
        self._key_id = hashlib.sha256(b"fairlead key id:" + key).hexdigest()[:16]

    @classmethod
    def empty(cls) -> "JobSecrets":
        """Return no secrets, with a key that is stored nowhere."""
        return cls({}, os.urandom(_KEY_BYTES))

    def set(
        self, tenant: str, name: str, value: str, at: float
    ) -> tuple[StoredSecret, Collection[Change]]:
        """Store a value; return the stored secret and the changes that persist it."""
        check_secret_name(name)
        _check_value(value)
        old = self._stored.get((tenant, name))
        count = sum(owner == tenant for owner, _ in self._stored)
        if old is None and count >= MAX_PER_TENANT:
            fix = f"expected at most {MAX_PER_TENANT}: remove one"
            raise InputError(f"tenant {tenant!r} has {count} secrets", fix=fix, field="name")
        created_at = at if old is None else old.created_at
        sealed = self._seal(tenant, name, value)
        secret = StoredSecret(tenant, name, created_at, at, self._key_id, sealed)
        self._stored[tenant, name] = secret
        return secret, [Put(KIND, _document_id(tenant, name), json.dumps(asdict(secret)))]

    def remove(self, tenant: str, name: str) -> Collection[Change]:
        """Remove a secret; return the changes that persist this, none if it does not exist."""
        if self._stored.pop((tenant, name), None) is None:
            return []
        return [Remove(KIND, _document_id(tenant, name))]

    def list(self) -> list[StoredSecret]:
        """Return all secrets, by tenant and name."""
        return [self._stored[key] for key in sorted(self._stored)]

    def is_readable(self, secret: StoredSecret) -> bool:
        """Return whether the server has the key of a secret."""
        return secret.key_id == self._key_id

    def require(self, tenant: str, names: Collection[str]) -> None:
        """Raise InputError unless a tenant has all of these secrets."""
        for name in names:
            try:
                self._find(tenant, name)
            except SecretUnavailableError as error:
                fix = f"expected one that `fairlead secret set {name}` has stored"
                raise InputError(str(error), fix=fix, field="secrets") from None

    def values(self, tenant: str, variables: Mapping[str, str]) -> dict[str, str]:
        """Return environment variable → value, for environment variable → name."""
        return {
            variable: self._open(self._find(tenant, name)) for variable, name in variables.items()
        }

    def _find(self, tenant: str, name: str) -> StoredSecret:
        secret = self._stored.get((tenant, name))
        if secret is None:
            raise SecretUnavailableError(f"tenant {tenant!r} has no secret {name!r}")
        if not self.is_readable(secret):
            raise SecretUnavailableError(
                f"secret {name!r} of tenant {tenant!r} was sealed with another key; set it again,"
                " or restore secrets.key"
            )
        return secret

    def _seal(self, tenant: str, name: str, value: str) -> str:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415  # slow

        nonce = secrets.token_bytes(_NONCE_BYTES)
        sealed = AESGCM(self._key).encrypt(nonce, value.encode(), _label(tenant, name))
        return base64.b64encode(nonce + sealed).decode()

    def _open(self, secret: StoredSecret) -> str:
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415

        sealed = base64.b64decode(secret.sealed)
        nonce, content = sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:]
        try:
            label = _label(secret.tenant, secret.name)
            return AESGCM(self._key).decrypt(nonce, content, label).decode()
        except InvalidTag:
            raise SecretUnavailableError(
                f"secret {secret.name!r} of tenant {secret.tenant!r} is damaged; set it again"
            ) from None


def load_job_secrets(documents: Mapping[str, str], key_file: Path) -> JobSecrets:
    """Return the stored secrets; make the key if there is none."""
    loaded = JobSecrets(documents, _read_key(key_file))
    unreadable = [secret.name for secret in loaded.list() if not loaded.is_readable(secret)]
    if unreadable:
        log.warning("secrets.unreadable", count=len(unreadable), key=str(key_file))
    return loaded


def _read_key(path: Path) -> bytes:
    try:
        key = bytes.fromhex(path.read_text(encoding="ascii"))
    except FileNotFoundError:
        key = os.urandom(_KEY_BYTES)
        replace_text(path, key.hex(), mode=0o600)
    except ValueError:
        key = b""
    if len(key) != _KEY_BYTES:
        fix = "restore it from a backup, or remove it and set all secrets again"
        raise InputError("not a key", fix=fix, source=str(path))
    return key


def _check_value(value: str) -> None:
    if not value:
        raise InputError("empty", fix="expected the value of the secret", field="value")
    if "\0" in value:
        raise InputError("null byte", fix="expected text", field="value")
    if (size := len(value.encode())) > MAX_BYTES:
        raise InputError(f"{size:,} bytes", fix=f"expected at most {MAX_BYTES:,}", field="value")


def _document_id(tenant: str, name: str) -> str:
    return f"{tenant}/{name}"  # a name has no slash


def _label(tenant: str, name: str) -> bytes:
    """Return the text that binds a ciphertext to its secret: rows cannot be exchanged."""
    return f"{tenant}/{name}".encode()
