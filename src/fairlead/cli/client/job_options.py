"""Command-line options of a job, derived from the declaration of its fields."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from fairlead.model.errors import InputError, UsageError
from fairlead.model.job import parse_accelerators
from fairlead.model.submission.fields import DeclaredField, declared_fields
from fairlead.model.submission.new_job import NewJob

_OPTIONS = tuple(
    item for item in declared_fields(NewJob) if not item.is_required and item.about.is_option
)


def with_job_options(command: Callable[..., None]) -> Callable[..., None]:
    """Replace the ``**options`` of a command by one option for each optional field of a job."""
    own = inspect.signature(command).parameters.values()
    kept = [item for item in own if item.kind is not inspect.Parameter.VAR_KEYWORD]
    parameters = [*kept[:-1], *(_parameter(item) for item in _OPTIONS), kept[-1]]
    # Typer reads both: the signature for order and defaults, the annotations for types.
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # a hook of inspect
    command.__annotations__ = {item.name: item.annotation for item in parameters}
    return command


def job_values(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of the fields that were set by options."""
    return {
        item.name: _reader(item)(options[item.name])
        for item in _OPTIONS
        if options[item.name] not in (None, [])
    }


def _reader(item: DeclaredField) -> Callable[[Any], Any]:
    if item.name == "speeds":
        return _speeds
    return tuple if item.about.is_repeatable else _READERS.get(item.type, _unchanged)


def _parameter(item: DeclaredField) -> inspect.Parameter:
    about, repeatable = item.about, item.about.is_repeatable
    option = typer.Option(
        about.option or f"--{item.name.replace('_', '-')}",
        help=about.help + (" Repeatable." if repeatable else _SUFFIXES.get(item.type, "")),
        min=_minimum(item),
        show_default=about.default or _default_text(item),
        rich_help_panel=about.group,
    )
    base = list[str] if repeatable else _TYPES.get(item.type, item.type)
    return inspect.Parameter(
        item.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[(Path if about.is_path else base) | None, option],
    )


def _minimum(item: DeclaredField) -> int | None:
    """Return the lower limit of a count; typer cannot express the limits of other numbers."""
    least = item.limits.ge if item.type is int and item.limits is not None else None
    return least if isinstance(least, int) and least >= 0 else None


def _default_text(item: DeclaredField) -> str | bool:
    default = item.default
    if item.choices:
        return str(default)
    if isinstance(default, bool) or not isinstance(default, int | float):
        return False
    return f"{default:g}"


def _accelerators(text: str) -> tuple[str, ...]:
    listed = tuple(part.strip() for part in text.split(","))
    try:
        parse_accelerators(listed)
    except InputError as error:
        raise UsageError(f"--accelerators: {error.problem}: {error.fix}") from None
    return listed


def _variables(pairs: Sequence[str]) -> dict[str, str]:
    variables = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise UsageError(f"--env: {pair!r}: expected NAME=VALUE")
        variables[name] = value
    return variables


def _speeds(pairs: Sequence[str]) -> dict[str, float]:
    speeds = {}
    for pair in pairs:
        accelerator, _, speed = pair.rpartition("=")
        try:
            speeds[accelerator] = float(speed)
        except ValueError:
            accelerator = ""
        if not accelerator:
            raise UsageError(f"--speed: {pair!r}: expected an accelerator and steps per second")
    return speeds


def _unchanged(value: Any) -> Any:
    return str(value) if isinstance(value, Path) else value


_TYPES: Mapping[type, Any] = {tuple: str, Mapping: list[str]}
_READERS: Mapping[type, Callable[[Any], Any]] = {tuple: _accelerators, Mapping: _variables}
_SUFFIXES: Mapping[type, str] = {
    tuple: " Separated by commas.",
    Mapping: " NAME=VALUE; repeatable.",
}
