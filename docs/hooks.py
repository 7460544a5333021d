"""Generates reference pages from the code, so that they cannot go stale.

Replaces a mark such as ``<!-- commands -->`` in a page by the section that its function returns.
"""

import importlib
import pkgutil
import re
from collections.abc import Callable, Iterator
from typing import Any

from fastapi import FastAPI
from typer.main import get_command

import fairlead
from fairlead.cli.main import app
from fairlead.model.errors import FairleadError
from fairlead.server.api import app as rest


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Replace each mark in a page by its generated section."""
    for mark, generate in _GENERATORS.items():
        if mark in markdown:
            markdown = markdown.replace(mark, generate())
    return markdown


_EXAMPLE = r"Example: +((?:.|\n(?!\n))+)"
"""an example in a command's help, up to the next paragraph"""


def commands() -> str:
    """Return a section for every command."""
    root: Any = get_command(app)
    return "\n\n".join(_command(name, command) for name, command in _walk("fairlead", root))


def _walk(name: str, command: Any) -> list[tuple[str, Any]]:
    """Return the commands that do something: leaves, and groups that run without a subcommand."""
    if hasattr(command, "commands"):
        parts = (_walk(f"{name} {key}", sub) for key, sub in command.commands.items())
        own = [(name, command)] if command.invoke_without_command and " " in name else []
        return own + [leaf for part in parts for leaf in part]
    return [(name, command)]


def _command(name: str, command: Any) -> str:
    about = re.sub(
        _EXAMPLE, lambda match: f"Example: `{' '.join(match[1].split())}`", command.help
    )
    lines = [f"## `{name}`", "", about.strip()]
    lines += ["", "| option | meaning |", "|---|---|"]
    for option in command.params:
        if option.name == "help":
            continue
        flags = [flag for flag in option.opts if flag.startswith("-")]
        names = ", ".join(f"`{name}`" for name in flags or [option.metavar or option.name.upper()])
        about = (getattr(option, "help", None) or "").replace("|", "\\|")
        default = option.default
        if isinstance(shown := getattr(option, "show_default", None), str):
            default = shown
        if default not in (None, ()) and default is not False and not callable(default):
            about += f" Default: `{default}`."
        lines.append(f"| {names} | {about} |")
    return "\n".join(lines)


def rest_api() -> str:
    """Return a section for every REST operation, from the OpenAPI schema."""
    application = FastAPI(title="Fairlead", version=fairlead.__version__)
    for router in rest.ROUTERS:
        application.include_router(router)
    schema = application.openapi()
    operations = (
        (path, method, operation)
        for path, methods in sorted(schema["paths"].items())
        for method, operation in methods.items()
    )
    sections = [_operation(*one) for one in operations]
    models = [_model(name, model) for name, model in schema["components"]["schemas"].items()]
    return "\n\n".join([*sections, "## Messages", *models])


def _operation(path: str, method: str, operation: dict[str, Any]) -> str:
    lines = [f"## `{method.upper()} {path}`", "", operation.get("description", "")]
    parameters = [
        f"| `{one['name']}` | {one['in']} | {_type(one['schema'])} |"
        for one in operation.get("parameters", ())
    ]
    if parameters:
        lines += ["", "| parameter | in | type |", "|---|---|---|", *parameters]
    for label, content in (
        ("Body", operation.get("requestBody", {}).get("content", {})),
        ("Answer", operation["responses"].get("200", {}).get("content", {})),
    ):
        for kind, body in content.items():
            lines += ["", f"{label}: `{kind}`, {_type(body.get('schema', {}))}."]
    return "\n".join(lines)


def _model(name: str, model: dict[str, Any]) -> str:
    required = set(model.get("required", ()))
    rows = [
        f"| `{field}` | {_type(about)} | {'yes' if field in required else 'no'} |"
        f" {about.get('description', '')} |"
        for field, about in model.get("properties", {}).items()
    ]
    head = [f"### {name}", "", model.get("description", "")]
    if rows:
        head += ["", "| field | type | required | meaning |", "|---|---|---|---|", *rows]
    return "\n".join(head)


def _type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(_type(part) for part in schema["anyOf"])
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    return str(schema.get("type", "any"))


def error_codes() -> str:
    """Return a table of every error code, its HTTP status and its meaning."""
    apart = ("__main__", ".migrations", "fairlead.job.torch")  # programs, and PyTorch's own
    for module in pkgutil.walk_packages(fairlead.__path__, "fairlead."):
        if not any(part in module.name for part in apart):
            importlib.import_module(module.name)
    rows = {
        error.code: f"| `{error.code}` | {_status(error.code)} | {_first_line(error)} |"
        for error in _subclasses(FairleadError)
        if error.__module__.startswith("fairlead.")
    }
    body = [rows[code] for code in sorted(rows)]
    return "\n".join(["| code | HTTP status | meaning |", "|---|---|---|", *body])


def _status(code: str) -> str:
    return "401 or 403" if code == "denied" else str(rest.status_of(code))


def _subclasses(kind: type[FairleadError]) -> Iterator[type[FairleadError]]:
    for sub in kind.__subclasses__():
        if "code" in vars(sub):
            yield sub
        yield from _subclasses(sub)


def _first_line(kind: type) -> str:
    return (kind.__doc__ or "").strip().splitlines()[0]


_GENERATORS: dict[str, Callable[[], str]] = {
    "<!-- commands -->": commands,
    "<!-- rest -->": rest_api,
    "<!-- errors -->": error_codes,
}
