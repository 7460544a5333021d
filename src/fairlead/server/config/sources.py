"""Sources of settings in pydantic-settings: flags, then the environment, then a TOML file.

Each source knows the origin of its values. The file source sees the values of the sources before
it, so it finds ``fairlead.toml`` in the data directory that a flag or a variable names.
"""

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationInfo, create_model, field_validator
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from fairlead.files.parsing.fields import unknown_name_error
from fairlead.files.parsing.text import read_text
from fairlead.model.errors import InputError
from fairlead.server.config.declaration import (
    DEFAULTS,
    NAMES,
    OPTIONS,
    PREFIX,
    TYPES,
    variable_of,
)

FILE = "fairlead.toml"
"""file read from the data directory when none is named"""


class _Base(BaseSettings):
    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_ignore_empty=True, extra="forbid", allow_inf_nan=False
    )

    @field_validator("*", mode="before")
    @classmethod
    def _refuse_booleans(cls, value: object, info: ValidationInfo) -> object:
        """Refuse true and false where pydantic would accept them as numbers."""
        if isinstance(value, bool) and TYPES[str(info.field_name)] is not bool:
            raise ValueError("boolean")  # pydantic collects no TypeErrors
        return value


def _field(name: str) -> Any:
    limits: dict[str, Any] = OPTIONS[name].limits
    return (Annotated[TYPES[name], Field(**limits)], DEFAULTS[name])


_FIELDS: dict[str, Any] = {name: _field(name) for name in NAMES}
DeclaredSettings: type[BaseSettings] = create_model("DeclaredSettings", __base__=_Base, **_FIELDS)
"""pydantic-settings model of the declared settings"""


class FlagSource(InitSettingsSource):
    """Values of flags; None stands for a flag that was not given."""

    def __init__(self, flags: Mapping[str, object]) -> None:
        values = {name: value for name, value in flags.items() if value is not None}
        super().__init__(DeclaredSettings, values)

    def origin(self, name: str) -> str | None:
        """Return ``flag`` if the setting was given as a flag."""
        return "flag" if name in self.init_kwargs else None


class VariableSource(EnvSettingsSource):
    """Values of environment variables, whose names are in upper case; empty ones do not count."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = {name: environ.get(variable_of(name), "") for name in NAMES}
        super().__init__(DeclaredSettings)

    def _load_env_vars(self) -> Mapping[str, str | None]:
        return {variable_of(name).lower(): value for name, value in self._environ.items() if value}

    def origin(self, name: str) -> str | None:
        """Return the name of the variable if it is set."""
        return variable_of(name) if self._environ[name] else None


class FileSource(InitSettingsSource):
    """Values of a TOML file; without one, of ``fairlead.toml`` in the data directory if there."""

    def __init__(self, path: Path | None) -> None:
        super().__init__(DeclaredSettings, {})
        self.path = path
        self._lines: dict[str, int | None] = {}

    def __call__(self) -> dict[str, Any]:
        """Read the file."""
        if self.path is None:
            data = Path(str(self.current_state.get("data", DEFAULTS["data"]))).expanduser()
            self.path = data / FILE if (data / FILE).is_file() else None
        if self.path is None:
            return {}
        values, self._lines = _read(self.path)
        return values

    def origin(self, name: str) -> str | None:
        """Return file and line of the setting if the file has it."""
        return f"{self.path}:{self._lines[name]}" if name in self._lines else None


Source = FlagSource | VariableSource | FileSource


def merge(sources: tuple[Source, ...]) -> BaseSettings:
    """Return the validated settings; earlier sources win over later ones."""

    class Merged(DeclaredSettings):  # type: ignore[misc,valid-type]  # made by create_model
        @classmethod
        def settings_customise_sources(
            cls, *_: object, **__: object
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            return sources

    merged: BaseSettings = Merged()
    return merged


def _read(path: Path) -> tuple[dict[str, Any], dict[str, int | None]]:
    """Return the values of a file and the line of each."""
    text = read_text(path)
    try:
        document = tomllib.loads(text.body)
    except RecursionError:
        fix = "expected name = value"
        raise InputError("nested too deeply", fix=fix, source=text.name) from None
    except ValueError as error:  # TOMLDecodeError, or a number with too many digits
        place = re.search(r"at line (\d+)", str(error))
        last = len(text.body.rstrip().split("\n"))
        raise InputError(
            f"not TOML ({str(error).partition(' (at')[0]})",
            fix="correct the syntax",
            source=text.name,
            line=int(place[1]) if place else last,
        ) from None
    lines = {name: _line_of(name, text.body) for name in document}
    for name, line in lines.items():
        if name not in NAMES:
            raise unknown_name_error("setting", name, NAMES).within(
                source=text.name, line=line, field=name
            )
    return {name: _resolve_path(path, name, value) for name, value in document.items()}, lines


def _resolve_path(path: Path, name: str, value: object) -> object:
    """Return a value with paths made relative to the file's directory, not the current one."""
    if not isinstance(value, str):
        return value
    there = path.parent / Path(value).expanduser()
    is_path = TYPES[name] in (Path, Path | None)
    return str(there) if is_path or (OPTIONS[name].may_be_file and there.is_file()) else value


def _line_of(name: str, body: str) -> int | None:
    for number, line in enumerate(body.split("\n"), start=1):
        if re.match(rf"\s*(\[\s*)?[\"']?{re.escape(name)}[\"']?\s*([.=\]])", line):
            return number
    return None
