"""Checks of settings against each other and against the files they name."""

import ssl
from pathlib import Path

import sqlalchemy as sa

from fairlead.engines.plugin import LOOPBACK
from fairlead.files.parsing.fields import name, quote
from fairlead.model.errors import InputError, UsageError
from fairlead.server.access.identity_provider import is_safe_url
from fairlead.server.access.oidc import require_library
from fairlead.server.config.declaration import OPTIONS
from fairlead.server.config.settings import ServeSettings
from fairlead.store import DATABASES


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
    for field, path in (("tls_certificate", certificate), ("tls_key", key)):
        if path is not None and not path.is_file():
            raise InputError(f"no such file: {path}", fix="expected a PEM file", field=field)
    if certificate is not None:
        _check_certificate(certificate, key)
    _check_oidc(settings)
    _ = settings.notified_urls
    _ = settings.allowed_names
    if settings.node_name is not None:
        _check_node_name(settings.node_name)
    if settings.database is not None:
        _check_database(settings.database)


def _check_node_name(node_name: str) -> None:
    try:
        trimmed = name(node_name)
    except InputError as error:
        fix = f"expected {OPTIONS['node_name'].expected}"
        raise InputError(error.problem, fix=fix, field="node_name") from None
    if trimmed != node_name:
        problem = f"{quote(node_name)} begins or ends with a space"
        raise InputError(problem, fix=f"expected {quote(trimmed)}", field="node_name")


def _check_database(database: str) -> None:
    """Raise InputError unless the store can open such a database, if it is there."""
    fix = f"expected {OPTIONS['database'].expected}"
    try:
        url = sa.make_url(database)
    except sa.exc.ArgumentError:
        raise InputError("not a database URL", fix=fix, field="database") from None
    if url.get_backend_name() not in DATABASES:
        problem = f"{quote(url.get_backend_name())} is not supported"
        raise InputError(problem, fix=fix, field="database")
    try:
        url.get_dialect().import_dbapi()
    except (sa.exc.NoSuchModuleError, ImportError) as error:
        problem = f"{quote(url.drivername)} cannot be used ({error})"
        fix += ", and the extra fairlead[postgresql]"
        raise InputError(problem, fix=fix, field="database") from None


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
