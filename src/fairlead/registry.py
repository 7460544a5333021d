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
    points = {point.name: point for point in entry_points(group=f"fairlead.{group}")}
    return dict(sorted(points.items()))


def create(group: str, spec: str, **preset: object) -> Any:
    """Return the object that ``spec`` names, constructed from its options and ``preset``.

    Each option is a field of the registered dataclass: a flag when the field is a bool. Preset
    fields are not options.
    """
    registered, options = load(group, spec)
    return registered(**parse_options(spec, registered, options, preset), **preset)


def load(group: str, spec: str) -> tuple[Any, str]:
    """Return the object registered under the name in ``spec``, and the options after the name."""
    name, _, options = spec.partition(":")
    points = available(group)
    if name not in points:
        raise UsageError(
            f"{group[:-1] if group != 'policies' else 'policy'}: unknown name {name!r}:"
            f" choose one of {', '.join(points)}"
        )
    return points[name].load(), options


def parse_options(
    spec: str, options_type: type, options: str, preset: Collection[str] = ()
) -> dict[str, object]:
    """Return the values of ``options``, converted to the types of the dataclass's fields."""
    hints = get_type_hints(options_type)
    init = [f for f in dataclasses.fields(options_type) if f.init and f.name not in preset]
    fields = {f.name.replace("_", "-"): f for f in init}
    parsed: dict[str, object] = {}
    for option in filter(None, options.split(",")):
        key, has_value, value = option.partition("=")
        if key not in fields:
            fix = f"expected one of {', '.join(fields)}" if fields else "it has no options"
            raise UsageError(f"{spec!r}: unknown option {key!r}: {fix}")
        field = fields[key]
        parsed[field.name] = _convert(spec, key, hints[field.name], value if has_value else None)
    return parsed


def _convert(spec: str, key: str, hint: object, value: str | None) -> object:
    if hint is bool:
        if value in (None, "yes", "true"):
            return True
        if value in ("no", "false"):
            return False
        raise UsageError(f"{spec!r}: {key}: bad value {value!r}: expected yes or no")
    if value is None:
        raise UsageError(f"{spec!r}: {key}: missing value: expected {key}=…")
    if hint in (int, float):
        try:
            number = int(value) if hint is int else float(value)
        except ValueError:
            raise UsageError(
                f"{spec!r}: {key}: not a number: {value!r}: expected a number"
            ) from None
        if not math.isfinite(number) or (key.endswith("-s") and number < 0):
            wanted = "0 or more seconds" if key.endswith("-s") else "a finite number"
            raise UsageError(f"{spec!r}: {key}: bad value {value}: expected {wanted}")
        return number
    return value
