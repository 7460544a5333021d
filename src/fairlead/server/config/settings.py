"""What ``fairlead serve`` can be told, and by whom: flags, then environment, then a file."""

import os
import re
import ssl
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_type_hints

import sqlalchemy as sa
from pydantic import Field, TypeAdapter, ValidationError

from fairlead import failpoints
from fairlead.engines.plugin import ANY_ADDRESS, LOOPBACK, Site, engine_plugin
from fairlead.files.parsing.fields import quoted, unknown
from fairlead.files.parsing.text import read_text
from fairlead.model.errors import InputError, UsageError

FILE = "fairlead.toml"
"""what is read from the data directory when no file is named"""
PREFIX = "FAIRLEAD_"
DEFAULT_DATA = "~/.fairlead"

Positive = Field(gt=0, le=1e12, allow_inf_nan=False)


def _option_help(text: str, **limits: Any) -> Any:
    return Field(description=text, **limits)


@dataclass(frozen=True, kw_only=True)
class ServeSettings:
    """All that ``fairlead serve`` can be told; descriptions say what is to be given."""

    data: Annotated[Path, _option_help("a directory for the database, logs and checkpoints")]
    host: Annotated[
        str, _option_help("an address to listen on; elsewhere than here needs TLS", min_length=1)
    ] = "127.0.0.1"
    port: Annotated[int, _option_help("a port from 1 to 65535", ge=1, le=65535)] = 8642
    policy: Annotated[str, _option_help("a policy, see `fairlead policies`", min_length=1)] = (
        "max-min"
    )
    mechanism: Annotated[str | None, _option_help("a mechanism, see `fairlead policies`")] = None
    round_s: Annotated[float | None, Positive, _option_help("seconds above 0")] = None
    engine: Annotated[
        str,
        _option_help(
            "an engine: local, rehearsal, or as in slurm:partition=gpu, ray:node-dir=D",
            min_length=1,
        ),
    ] = "local"
    emulate: Annotated[
        str | None, _option_help("devices to emulate, as in v100=2,k80=4, or a YAML file")
    ] = None
    speeds: Annotated[str | None, _option_help("a table of speeds, CSV or Gavel JSON")] = None
    database: Annotated[
        str | None, _option_help("an address such as postgresql+psycopg://user@host/name")
    ] = None
    tls_certificate: Annotated[Path | None, _option_help("a PEM file")] = None
    tls_key: Annotated[Path | None, _option_help("a PEM file")] = None
    standby_s: Annotated[
        float,
        _option_help("seconds to wait for another scheduler's end, 0 or more", ge=0, le=1e12),
    ] = 0.0
    log_format: Annotated[Literal["text", "json"], _option_help("text or json")] = "text"
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], _option_help("debug, info, warning or error")
    ] = "info"
    requests_per_s: Annotated[
        float, Positive, _option_help("requests a second that a token may make, above 0")
    ] = 1000.0
    requests_burst: Annotated[
        int, _option_help("requests that a token may make at once, at least 1", ge=1, le=10**9)
    ] = 10_000
    renewals_per_s: Annotated[
        float, Positive, _option_help("renewals a second that a lease may make, above 0")
    ] = 1000.0
    body_mib: Annotated[float, Positive, _option_help("MiB that a request may hold, above 0")] = (
        4.0
    )

    @property
    def url(self) -> str:
        """Where clients on this machine reach the server."""
        scheme = "https" if self.tls_certificate else "http"
        host = "127.0.0.1" if self.host in (*ANY_ADDRESS, *LOOPBACK) else self.host
        return f"{scheme}://{host}:{self.port}"

    @property
    def members_url(self) -> str:
        """Where the members of jobs reach it, which may run on other machines."""
        plugin, _ = engine_plugin(self.engine)
        if plugin.runs_here or self.host not in ANY_ADDRESS:
            return self.url
        return self.url.replace("127.0.0.1", os.uname().nodename, 1)

    @property
    def site(self) -> Site:
        """The part of the settings that engines see."""
        return Site(
            data=self.data.absolute(),
            host=self.host,
            port=self.port,
            emulate=self.emulate,
            engine=self.engine,
        )

    @property
    def store_url(self) -> str:
        """The database's address."""
        return self.database or f"sqlite:///{self.data / 'fairlead.db'}"


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting as it is in force."""

    name: str
    value: object
    origin: str
    """flag, default, a variable's name, or file and line"""

    @property
    def shown(self) -> object:
        """The value without secrets, as JSON can say it."""
        if self.name == "database" and isinstance(self.value, str):
            return _without_password(self.value)
        return str(self.value) if isinstance(self.value, Path) else self.value


@dataclass(frozen=True, slots=True)
class Effective:
    """The settings in force, each with whoever said so."""

    settings: ServeSettings
    listed: tuple[Setting, ...]
    file: Path | None

    def origin(self, name: str) -> str:
        """Return who said what a setting is."""
        return next(one.origin for one in self.listed if one.name == name)


def effective(
    flags: Mapping[str, object], environ: Mapping[str, str], file: Path | None = None
) -> Effective:
    """Return the settings: of flags that are not None, else the environment, else the file.

    Without a file, ``fairlead.toml`` in the data directory is read if it is there.
    """
    said: dict[str, tuple[object, str]] = {}
    for name in NAMES:
        variable = variable_of(name)
        if flags.get(name) is not None:
            said[name] = (flags[name], "flag")
        elif environ.get(variable):
            said[name] = (environ[variable], variable)
    if file is None:
        data = Path(str(said.get("data", (DEFAULT_DATA, ""))[0])).expanduser()
        file = data / FILE if (data / FILE).is_file() else None
    if file is not None:
        said = {**_read(file), **said}
    said.setdefault("data", (DEFAULT_DATA, "default"))
    values = {name: _checked(name, *given) for name, given in said.items()}
    values["data"] = values["data"].expanduser().absolute()
    settings = ServeSettings(**values)
    _check_consistent(settings)
    listed = (
        Setting(name, getattr(settings, name), said[name][1] if name in said else "default")
        for name in NAMES
    )
    return Effective(settings, tuple(listed), file)


def variable_of(name: str) -> str:
    """Return the environment variable of a setting."""
    return PREFIX + name.upper()


def description_of(name: str) -> str:
    """Return what is to be given for a setting."""
    found = [m.description for m in get_args(_HINTS[name])[1:] if m.description]
    return str(found[0])


def _read(path: Path) -> dict[str, tuple[object, str]]:
    """Return the settings of a file, with where each stands."""
    text = read_text(path)
    try:
        found = tomllib.loads(text.body)
    except tomllib.TOMLDecodeError as error:
        place = re.search(r"at line (\d+)", str(error))
        last = len(text.body.rstrip().split("\n"))
        raise InputError(
            f"it is not TOML ({str(error).partition(' (at')[0]})",
            fix="correct it there",
            source=text.name,
            line=int(place[1]) if place else last,
        ) from None
    said = {}
    for name, value in found.items():
        line = _line_of(name, text.body)
        if name not in NAMES:
            raise unknown("setting", name, NAMES).within(source=text.name, line=line, field=name)
        said[name] = (_beside(path, name, value), f"{path}:{line}")
    return said


def _beside(path: Path, name: str, value: object) -> object:
    """Return a path of the file as seen from where the file is, not from where we are."""
    if not isinstance(value, str):
        return value
    there = path.parent / Path(value).expanduser()
    is_path = name in ("data", "tls_certificate", "tls_key")
    return str(there) if is_path or (name in ("speeds", "emulate") and there.is_file()) else value


def _line_of(name: str, body: str) -> int | None:
    for number, line in enumerate(body.split("\n"), start=1):
        if re.match(rf"\s*(\[\s*)?[\"']?{re.escape(name)}[\"']?\s*([.=\]])", line):
            return number
    return None


def _checked(name: str, value: object, origin: str) -> Any:
    try:
        if isinstance(value, bool):  # which would pass as a number
            raise ValueError
        return _ADAPTERS[name].validate_python(value)
    except (ValidationError, ValueError):
        found = InputError(
            f"{quoted(value)} is not possible", fix=f"give {description_of(name)}", field=name
        )
        raise placed(found, origin) from None


def placed(error: InputError, origin: str) -> InputError:
    """Return an error with where the setting at fault was given."""
    source, _, line = origin.rpartition(":")
    if source and line.isdigit():
        return error.within(source=source, line=int(line))
    return error if origin in ("flag", "default") else error.within(source=origin)


def _check_consistent(settings: ServeSettings) -> None:
    """Refuse settings that cannot go together."""
    certificate, key = settings.tls_certificate, settings.tls_key
    if (certificate is None) != (key is None):
        missing = "tls_key" if key is None else "tls_certificate"
        raise InputError("TLS needs a certificate and its key", fix="give both", field=missing)
    if settings.host not in LOOPBACK and certificate is None:
        raise UsageError(
            f"host: {quoted(settings.host)} would send tokens in the clear; give"
            " tls_certificate and tls_key, or listen on 127.0.0.1 behind a proxy that has them"
        )
    for name in ("tls_certificate", "tls_key"):
        path = getattr(settings, name)
        if path is not None and not path.is_file():
            raise InputError(f"there is no file {path}", fix="check the path", field=name)
    if certificate is not None:
        _check_pair(certificate, key)
    if settings.database is not None:
        try:
            sa.make_url(settings.database)
        except sa.exc.ArgumentError:
            fix = f"give {description_of('database')}"
            raise InputError("it is no database's address", fix=fix, field="database") from None


def _check_pair(certificate: Path, key: Path | None) -> None:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, "")
    except OSError as error:  # ssl's own errors are of this kind, too
        said = f"{certificate} and {key} cannot be used ({error.strerror or error})"
        fix = "give a certificate and its own key, both as PEM and without a password"
        raise InputError(said, fix=fix, field="tls_certificate") from None


def unread(environ: Iterable[str]) -> list[str]:
    """Return the variables that look like settings and are none, for whoever misspelt one."""
    known = {variable_of(name) for name in NAMES}
    return sorted(v for v in environ if v.startswith(PREFIX) and v not in known | _CLIENTS)


def _without_password(url: str) -> str:
    return sa.make_url(url).render_as_string(hide_password=True)


_HINTS = get_type_hints(ServeSettings, include_extras=True)
NAMES = tuple(field.name for field in fields(ServeSettings))
_ADAPTERS = {name: TypeAdapter(_HINTS[name]) for name in NAMES}
_CLIENTS = {"FAIRLEAD_URL", "FAIRLEAD_TOKEN", failpoints.VARIABLE}
