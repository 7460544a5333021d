"""Policies, mechanisms and engines by name: ``name[:option[,option=value…]]``."""

import dataclasses
import difflib
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache, reduce
from importlib import import_module
from typing import Any, Literal, get_args, get_origin, get_type_hints

from fairlead.model.errors import FairleadError, UsageError
from fairlead.registry.built_in import BUILT_IN
from fairlead.version import __version__

_KINDS = {"policies": "policy", "mechanisms": "mechanism", "engines": "engine"}
"""group → a plug-in of it"""
GROUPS = tuple(_KINDS)
"""groups of plug-ins"""
_REQUIRED = {
    "policies": ("allocate",),
    "mechanisms": ("initial", "plan"),
    "engines": ("options", "runs_here", "open", "check"),
}
"""group → attributes of every plug-in"""


@dataclasses.dataclass(frozen=True, slots=True)
class PlugIn:
    """A policy, mechanism or engine, and the package that provides it."""

    kind: str
    name: str
    package: str
    """distribution and version"""
    module: str
    target: str = ""
    """``module:attribute``, the value of an entry point"""

    @property
    def built_in(self) -> bool:
        """Whether it is a part of Fairlead."""
        return self.module.partition(".")[0] == "fairlead"

    @property
    def label(self) -> str:
        """Package and name, for metrics."""
        return f"{self.package.partition(' ')[0]}:{self.name}"

    def load(self) -> Any:
        """Return the object itself."""
        attributes = self.target.partition(":")[2].partition("[")[0].strip()
        return reduce(getattr, filter(None, attributes.split(".")), import_module(self.module))

    def __str__(self) -> str:
        origin = "" if self.built_in else f" of package {self.package!r}"
        return f"{self.kind} {self.name!r}{origin}"


@dataclasses.dataclass(frozen=True, slots=True)
class BrokenPlugIn:
    """A plug-in that cannot be used, and the reason."""

    plug_in: PlugIn
    reason: str


@cache
def _built_in(group: str) -> Mapping[str, PlugIn]:
    package = f"fairlead {__version__}"
    return {
        name: PlugIn(_KINDS[group], name, package, target.partition(":")[0], target)
        for name, target in BUILT_IN[group].items()
    }


@cache
def _entry_points() -> Any:
    """Return all entry points; finding them reads a file of each package.

    Their type depends on the version of Python.
    """
    from importlib.metadata import entry_points  # noqa: PLC0415  # slow to import

    return entry_points()


@cache
def _of_other_packages(group: str) -> Sequence[PlugIn]:
    """Return the plug-ins of a group by precedence: the first of several of a name wins."""
    plug_ins = []
    for point in _entry_points().select(group=f"fairlead.{group}"):
        if point.dist is not None and point.dist.name == "fairlead":
            continue  # earlier versions of Fairlead had entry points of their own
        package = "an unknown package"
        if point.dist is not None:
            package = f"{point.dist.name} {point.dist.version}"
        module = point.value.partition(":")[0].partition("[")[0].strip()
        plug_ins.append(PlugIn(_KINDS[group], point.name, package, module, point.value))
    return sorted(plug_ins, key=lambda each: (each.package.partition(" ")[0], each.target))


@cache
def available(group: str) -> Mapping[str, PlugIn]:
    """Return the plug-ins of a group by name, sorted; Fairlead's own come first.

    Some of them may be broken.
    """
    others = {each.name: each for each in reversed(_of_other_packages(group))}
    return dict(sorted({**others, **_built_in(group)}.items()))


def is_available(group: str, name: str) -> bool:
    """Return whether a plug-in has this name, without a look at other packages for Fairlead's."""
    return name in _built_in(group) or name in available(group)


def plug_in(group: str, spec: str) -> PlugIn:
    """Return the plug-in that ``spec`` names."""
    return _find(group, spec.partition(":")[0])


def broken_plug_ins(group: str) -> Iterator[BrokenPlugIn]:
    """Yield the plug-ins of a group that cannot be loaded or whose name is taken."""
    chosen = available(group)
    for each in (*_built_in(group).values(), *_of_other_packages(group)):
        winner = chosen[each.name]
        if winner != each:
            yield BrokenPlugIn(each, f"its name is taken by package {winner.package!r}")
            continue
        try:
            _load_checked(group, each)
        except (Exception, SystemExit) as error:
            yield BrokenPlugIn(each, _reason(error))


def create(group: str, spec: str, **preset: object) -> Any:
    """Return the object that ``spec`` names, constructed from its options and ``preset``.

    Each option is a field of the registered dataclass: a flag when the field is a bool. Preset
    fields are not options.
    """
    registered, options = load(group, spec)
    values = parse_options(spec, registered, options, preset)
    try:
        return registered(**values, **preset)
    except FairleadError:
        raise
    except Exception as error:
        described = plug_in(group, spec)
        if described.built_in:
            raise
        raise UsageError(f"{described} cannot be created: {_reason(error)}") from error


def load(group: str, spec: str) -> tuple[Any, str]:
    """Return the object registered under the name in ``spec``, and the options after the name."""
    name, _, options = spec.partition(":")
    return _load(group, _find(group, name)), options


def _find(group: str, name: str) -> PlugIn:
    if not is_available(group, name):
        names = available(group)
        close = difflib.get_close_matches(name.lower(), names, n=1)
        known = f"expected one of {', '.join(names)}"
        if group == "policies" and is_available("mechanisms", name):
            raise UsageError(f"policy: {name!r} is a mechanism and has no shares: {known}")
        fix = f"did you mean {close[0]!r}?" if close else known
        raise UsageError(f"{_KINDS[group]}: unknown name {name!r}: {fix}")
    return _built_in(group).get(name) or available(group)[name]


def _load(group: str, described: PlugIn) -> Any:
    """Return the object of a plug-in; raise UsageError that names a broken package."""
    try:
        return _load_checked(group, described)
    except (Exception, SystemExit) as error:  # a plug-in's module may do anything
        raise UsageError(
            f"{described}: {described.target!r} cannot be used: {_reason(error)}:"
            " update or uninstall the package"
        ) from error


def _load_checked(group: str, described: PlugIn) -> Any:
    loaded = described.load()
    _check(group, loaded)
    return loaded


def _check(group: str, loaded: object) -> None:
    """Raise TypeError unless an object has the attributes of its group's plug-ins."""
    if group != "engines":
        if not (isinstance(loaded, type) and dataclasses.is_dataclass(loaded)):
            raise TypeError(f"{loaded!r:.80} is not a dataclass")
        get_type_hints(loaded)
        if group == "mechanisms" and hasattr(loaded, "fluid"):
            return
    missing = [name for name in _REQUIRED[group] if not hasattr(loaded, name)]
    if missing:
        raise TypeError(f"{loaded!r:.80} has no {' and no '.join(missing)}")


def _reason(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


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
            fix = f"expected one of {', '.join(fields)}" if fields else "expected none"
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
    choices = get_args(hint)
    words = [word for each in choices if get_origin(each) is Literal for word in get_args(each)]
    if value in words:
        return value
    hint = float if float in choices else hint
    if hint in (int, float):
        instead = "".join(f", or {word}" for word in words)
        try:
            number = int(value) if hint is int else float(value)
        except ValueError:
            raise UsageError(
                f"{spec!r}: {key}: not a number: {value!r}: expected a number{instead}"
            ) from None
        if not math.isfinite(number) or (key.endswith("-s") and number < 0):
            wanted = "0 or more seconds" if key.endswith("-s") else "a finite number"
            raise UsageError(f"{spec!r}: {key}: bad value {value}: expected {wanted}{instead}")
        return number
    return value
