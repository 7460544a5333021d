"""Loading of settings with the origin of each: flags, then environment, then a TOML file."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa
from pydantic import ValidationError

from fairlead import failpoints
from fairlead.files.parsing.fields import quote
from fairlead.model.errors import FairleadError, InputError, UsageError
from fairlead.server.config.consistency import check_consistent
from fairlead.server.config.database_password import VARIABLE as _PASSWORD_VARIABLE
from fairlead.server.config.database_password import database_password
from fairlead.server.config.declaration import NAMES, OPTIONS, PREFIX, flag_of, variable_of
from fairlead.server.config.settings import ServeSettings
from fairlead.server.config.sources import FileSource, FlagSource, Source, VariableSource, merge

_OTHER_VARIABLES = {
    *("FAIRLEAD_URL", "FAIRLEAD_TOKEN"),
    *(failpoints.VARIABLE, _PASSWORD_VARIABLE),
}


@dataclass(frozen=True, slots=True)
class SettingValue:
    """Effective value of one setting."""

    name: str
    value: object
    origin: str
    """``flag``, ``default``, a variable's name, or file and line"""

    @property
    def shown(self) -> object:
        """Value without passwords, as JSON can hold it."""
        if OPTIONS[self.name].has_password and isinstance(self.value, str):
            return sa.make_url(self.value).render_as_string(hide_password=True)
        return str(self.value) if isinstance(self.value, Path) else self.value


@dataclass(frozen=True, slots=True)
class EffectiveSettings:
    """Settings of a server, each with its origin."""

    settings: ServeSettings
    values: tuple[SettingValue, ...]
    file: Path | None

    def origin(self, name: str) -> str:
        """Return the origin of a setting."""
        return next(value.origin for value in self.values if value.name == name)


def load_settings(
    flags: Mapping[str, object], environ: Mapping[str, str], file: Path | None = None
) -> EffectiveSettings:
    """Return the settings: flags that are not None, else the environment, else the file.

    Without a file, ``fairlead.toml`` in the data directory is read if it exists.
    """
    file_source = FileSource(file)
    sources: tuple[Source, ...] = (FlagSource(flags), VariableSource(environ), file_source)
    try:
        merged = merge(sources)
    except ValidationError as error:
        raise _invalid(error, sources) from None
    values = {name: getattr(merged, name) for name in NAMES}
    values["data"] = values["data"].expanduser().absolute()
    origins = {name: _origin(name, sources) for name in NAMES}
    try:
        password = database_password(
            values["database"],
            values["database_password_file"],
            environ,
            from_flag=origins["database"] == "flag",
        )
        settings = ServeSettings(**values, database_password=password)
        check_consistent(settings)
    except InputError as error:
        raise with_origin(error, origins[str(error.field)]) from None
    listed = (SettingValue(name, getattr(settings, name), origins[name]) for name in NAMES)
    return EffectiveSettings(settings, tuple(listed), file_source.path)


def with_origin(error: InputError, origin: str) -> InputError:
    """Return an error about a setting with the place where the setting was given."""
    source, _, line = origin.rpartition(":")
    if source and line.isdigit():
        return error.within(source=source, line=int(line))
    if origin == "flag" and error.field in NAMES:
        return InputError(error.problem, fix=error.fix, field=flag_of(str(error.field)))
    return error if origin in ("flag", "default") else error.within(source=origin)


def unknown_variables(environ: Iterable[str]) -> list[str]:
    """Return the variables that look like settings but are none: they may be misspelt."""
    known = {variable_of(name) for name in NAMES} | _OTHER_VARIABLES
    return sorted(name for name in environ if name.startswith(PREFIX) and name not in known)


def _origin(name: str, sources: Iterable[Source]) -> str:
    origins = (source.origin(name) for source in sources)
    return next((origin for origin in origins if origin is not None), "default")


def _invalid(error: ValidationError, sources: Iterable[Source]) -> FairleadError:
    """Return the error for the first setting with an invalid value."""
    first = error.errors(include_url=False, include_context=False)[0]
    name = str(first["loc"][0])
    origin = _origin(name, sources)
    problem, fix = f"invalid value {quote(first['input'])}", f"expected {OPTIONS[name].expected}"
    refused = with_origin(InputError(problem, fix=fix, field=name), origin)
    return UsageError(str(refused)) if origin == "flag" else refused
