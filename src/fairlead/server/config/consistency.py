"""Checks of settings against each other and against the files they name."""

import ssl
from pathlib import Path

import sqlalchemy as sa

from fairlead.engines.plugin import LOOPBACK
from fairlead.files.parsing.fields import quote
from fairlead.model.errors import InputError, UsageError
from fairlead.server.access.identity_provider import is_safe_url
from fairlead.server.access.oidc import require_library
from fairlead.server.config.declaration import OPTIONS
from fairlead.server.config.settings import ServeSettings


def check_consistent(settings: ServeSettings) -> None:
    """Raise InputError or UsageError for settings that cannot be combined or used."""
    certificate, key = settings.tls_certificate, settings.tls_key
    if (certificate is None) != (key is None):
        missing, present = ("tls_key", "tls_certificate")[:: 1 if key is None else -1]
        raise InputError("missing", fix=f"expected together with {present}", field=missing)
    if settings.host not in LOOPBACK and certificate is None:
        raise UsageError(
            f"host: {quote(settings.host)} would send tokens in the clear: expected"
            " tls_certificate and tls_key, or 127.0.0.1 behind a proxy that has them"
        )
    for name, path in (("tls_certificate", certificate), ("tls_key", key)):
        if path is not None and not path.is_file():
            raise InputError(f"no such file: {path}", fix="expected a PEM file", field=name)
    if certificate is not None:
        _check_certificate(certificate, key)
    _check_oidc(settings)
    _ = settings.notified_urls
    if settings.database is not None:
        try:
            sa.make_url(settings.database)
        except sa.exc.ArgumentError:
            fix = f"expected {OPTIONS['database'].expected}"
            raise InputError("not a database URL", fix=fix, field="database") from None


def _check_oidc(settings: ServeSettings) -> None:
    issuer, client_id = settings.oidc_issuer, settings.oidc_client_id
    if (issuer is None) != (client_id is None):
        missing, present = ("oidc_client_id", "oidc_issuer")[:: 1 if issuer else -1]
        raise InputError("missing", fix=f"expected together with {present}", field=missing)
    if issuer is not None:
        if not is_safe_url(issuer):
            fix = f"expected {OPTIONS['oidc_issuer'].expected}"
            raise InputError(f"{quote(issuer)} is not safe", fix=fix, field="oidc_issuer")
        require_library()


def _check_certificate(certificate: Path, key: Path | None) -> None:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, "")
    except OSError as error:  # ssl.SSLError is an OSError
        problem = f"{certificate} and {key} cannot be used ({error.strerror or error})"
        fix = "expected a certificate and its key, both as PEM and without a password"
        raise InputError(problem, fix=fix, field="tls_certificate") from None
