"""``fairlead policies``."""

import dataclasses
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairlead.cli.shared.options import Json
from fairlead.model.errors import UsageError

if TYPE_CHECKING:
    from fairlead.registry import BrokenPlugIn

_GROUPS = ("policies", "mechanisms")
_NOT_OPTIONS = ("policy", "round_s", "fluid")
"""fields that other options of commands set, or none"""


def policies(
    name: Annotated[
        str | None,
        typer.Argument(help="Policy or mechanism to explain, with its options."),
    ] = None,
    as_json: Json = False,
) -> None:
    """List the available policies and mechanisms with their options, or explain one of them.

    Example:  fairlead policies

    Example:  fairlead policies gandiva-fair
    """
    from fairlead.cli.shared.json_output import print_json

    if name is None:
        _list(as_json)
        return
    explanation = explain(name)
    if as_json:
        print_json(explanation)
    else:
        _print(explanation)


def explain(spec: str) -> dict[str, Any]:
    """Return the promise, description, options and design note of a policy or mechanism."""
    from fairlead.cli.research.design_notes import design_note
    from fairlead.registry import load, plug_in

    name = spec.partition(":")[0]
    group = _group_of(name)
    plugin, _ = load(group, name)
    described = plug_in(group, name)
    promise, _, rest = (plugin.__doc__ or name).strip().partition("\n")
    meanings = _attribute_docs(plugin)
    fields = {field.name: field for field in dataclasses.fields(plugin) if field.init}
    return {
        "name": name,
        "kind": described.kind,
        "about": promise,
        "description": _paragraphs(rest),
        "options": [
            {"name": _option(key), "default": _default(field), "about": meanings.get(key, "")}
            for key, field in fields.items()
            if key not in _NOT_OPTIONS
        ],
        "round_s": fields["round_s"].default if "round_s" in fields else None,
        "realises_policies": "policy" in fields,
        "design_note": design_note(name) if described.built_in else None,
        "package": described.package,
    }


def _group_of(name: str) -> str:
    """Return the group of a policy or mechanism; raise UsageError that suggests a similar name."""
    import difflib

    from fairlead.registry import available

    groups = {each: group for group in _GROUPS for each in available(group)}
    if name not in groups:
        close = difflib.get_close_matches(name.lower(), groups, n=1)
        fix = f"did you mean {close[0]!r}?" if close else "see `fairlead policies` for all names"
        raise UsageError(f"name: unknown policy or mechanism {name!r}: {fix}")
    return groups[name]


def _attribute_docs(plugin: type) -> dict[str, str]:
    """Return fields → docstring below the field, those of a subclass before its bases'."""
    import ast
    import inspect
    import textwrap

    docs: dict[str, str] = {}
    for owner in filter(dataclasses.is_dataclass, reversed(plugin.__mro__)):
        try:
            (node,) = ast.parse(textwrap.dedent(inspect.getsource(owner))).body
        except (OSError, TypeError, SyntaxError, ValueError):  # installed without its source
            continue
        body = node.body if isinstance(node, ast.ClassDef) else []
        for field, below in pairwise(body):
            match field, below:
                case (
                    ast.AnnAssign(target=ast.Name(id=key)),
                    ast.Expr(value=ast.Constant(value=str(text))),
                ):
                    docs[key] = _one_line(text)
    return docs


def _paragraphs(text: str) -> list[str]:
    import inspect

    cleaned = inspect.cleandoc(f"\n{text}").split("\n\n")
    return [line for line in map(_one_line, cleaned) if line]


def _one_line(text: str) -> str:
    return " ".join(text.replace("``", "`").split())


def _option(field: str) -> str:
    return field.replace("_", "-")


def _default(field: "dataclasses.Field[Any]") -> str | float | bool | None:
    """Return the default of an option, None if it has none."""
    value = field.default
    return value if isinstance(value, str | int | float) else None


def _print(explanation: dict[str, Any]) -> None:
    from fairlead.cli.shared.output import results, table

    def write(text: str) -> None:
        results.print(text, highlight=False)

    write(f"{explanation['kind']} {explanation['name']}: {explanation['about']}")
    for paragraph in explanation["description"]:
        write(f"\n{paragraph}")
    write("")
    options = explanation["options"]
    if options:
        rows = [[each["name"], _text(each["default"]), each["about"]] for each in options]
        table("options", ["option", "default", "meaning"], rows, figures=False)
        flag = "--mechanism" if explanation["realises_policies"] else "--policy"
        write(f"Example:  {flag} {explanation['name']}:{_example(options[0])}")
    if explanation["round_s"] is not None:
        write(f"A round takes {explanation['round_s']:g} s, or as long as --round says.")
    note = explanation["design_note"]
    write(f"From package {explanation['package']}" if note is None else f"Design note: {note}")


def _example(option: dict[str, Any]) -> str:
    """Return an option as it is written after the name: a flag the other way, a value as it is."""
    name, default = option["name"], option["default"]
    if isinstance(default, bool):
        return f"{name}=no" if default else str(name)
    return f"{name}={_text(default) or '…'}"


def _text(default: object) -> str:
    if isinstance(default, bool):
        return "yes" if default else "no"
    if isinstance(default, float):
        return f"{default:g}"
    return "" if default is None else str(default)


def _list(as_json: bool) -> None:
    from fairlead.cli.shared.json_output import print_json
    from fairlead.cli.shared.output import results, table
    from fairlead.registry import available, broken_plug_ins

    broken = [(group, each) for group in _GROUPS for each in broken_plug_ins(group)]
    entries = [
        entry for group in _GROUPS for name in available(group) for entry in _entries(group, name)
    ]
    if as_json:
        print_json([*entries, *(_broken_entry(group, each) for group, each in broken)])
        return
    for group in _GROUPS:
        rows = [
            [row["name"], row["about"].replace("``", "`"), ", ".join(row["options"])]
            for row in entries
            if row["kind"] == group
        ]
        table(group, ["name", "description", "options"], rows, figures=False)
    if broken:
        rows = [[str(each.plug_in), each.plug_in.target, each.reason] for _, each in broken]
        table("broken plug-ins", ["plug-in", "entry point", "reason"], rows, figures=False)
    results.print("`fairlead policies NAME` explains one with its options.", highlight=False)


def _entries(group: str, name: str) -> list[dict[str, Any]]:
    """Return the JSON entry of a plug-in; none for a broken one."""
    from fairlead.registry import load, plug_in

    try:
        plugin, _ = load(group, name)
    except UsageError:
        return []  # listed as broken
    options = [
        _option(field.name)
        for field in dataclasses.fields(plugin)
        if field.init and field.name not in _NOT_OPTIONS
    ]
    promise = (plugin.__doc__ or name).strip().partition("\n")[0]
    entry = {"name": name, "kind": group, "options": options, "about": promise}
    return [entry | {"package": plug_in(group, name).package, "broken": None}]


def _broken_entry(group: str, broken: "BrokenPlugIn") -> dict[str, Any]:
    """Return the JSON entry of a plug-in that cannot be used."""
    plugin = broken.plug_in
    return {"name": plugin.name, "kind": group, "options": [], "about": ""} | {
        "package": plugin.package,
        "entry_point": plugin.target,
        "broken": broken.reason,
    }
