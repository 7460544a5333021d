"""Policies, mechanisms and engines by name: ``name[:option[,option=value…]]``."""

import dataclasses
import math
from collections.abc import Collection, Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, get_type_hints

from fairlead.model.errors import UsageError


@cache
def available(group: str) -> Mapping[str, EntryPoint]:
    """Return the entry points of ``fairlead.<group>`` by name, sorted."""
    found = {point.name: point for point in entry_points(group=f"fairlead.{group}")}
    return dict(sorted(found.items()))


def create(group: str, spec: str, **given: object) -> Any:
    """Return what ``spec`` names, constructed from its options and what the caller gives.

    Each option is a field of the registered dataclass: a flag when the field is a bool. Fields
    that the caller gives are not options.
    """
    registered, options = load(group, spec)
    return registered(**parse_options(spec, registered, options, given), **given)


def load(group: str, spec: str) -> tuple[Any, str]:
    """Return the object registered under the name in ``spec``, and the options after the name."""
    name, _, options = spec.partition(":")
    points = available(group)
    if name not in points:
        raise UsageError(
            f"no {group[:-1] if group != 'policies' else 'policy'} is called {name!r};"
            f" choose one of {', '.join(points)}"
        )
    return points[name].load(), options


def parse_options(
    spec: str, options_type: type, options: str, given: Collection[str] = ()
) -> dict[str, object]:
    """Return the values of ``options``, converted to the types of the dataclass's fields."""
    hints = get_type_hints(options_type)
    init = [f for f in dataclasses.fields(options_type) if f.init and f.name not in given]
    fields = {f.name.replace("_", "-"): f for f in init}
    parsed: dict[str, object] = {}
    for option in filter(None, options.split(",")):
        key, has_value, value = option.partition("=")
        if key not in fields:
            known = ", ".join(fields) or "none"
            raise UsageError(f"{spec!r}: no option {key!r}; its options are: {known}")
        field = fields[key]
        parsed[field.name] = _convert(spec, key, hints[field.name], value if has_value else None)
    return parsed


def _convert(spec: str, key: str, hint: object, value: str | None) -> object:
    if hint is bool:
        if value in (None, "yes", "true"):
            return True
        if value in ("no", "false"):
            return False
        raise UsageError(f"{spec!r}: {key}={value!r} is not yes or no")
    if value is None:
        raise UsageError(f"{spec!r}: {key} needs a value, {key}=…")
    if hint in (int, float):
        try:
            number = int(value) if hint is int else float(value)
        except ValueError:
            raise UsageError(f"{spec!r}: {key}={value!r} is not a number") from None
        if not math.isfinite(number) or (key.endswith("-s") and number < 0):
            least = "0 or more seconds" if key.endswith("-s") else "a finite number"
            raise UsageError(f"{spec!r}: {key}={value} is not allowed; give {least}")
        return number
    return value
