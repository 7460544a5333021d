"""TypeScript types of the REST API's messages, with which `make lint` checks the web pages.

``python -m tools.web.message_types`` writes ``types/messages.d.ts`` from the OpenAPI schema; Git
ignores the file.
"""

import json
from pathlib import Path
from typing import Any

from fastapi import FastAPI

from fairlead.server.api.app import ROUTERS

TARGET = Path(__file__).parent / "types/messages.d.ts"
_HEAD = (
    "/** Messages of the REST API; made by tools/web/message_types.py. */\ndeclare namespace Api {"
)
_PLAIN = {"integer": "number", "number": "number", "string": "string", "boolean": "boolean"}


def main() -> None:
    """Write the types of all messages, and the type of each resource by its path."""
    app = FastAPI()
    for router in ROUTERS:
        app.include_router(router)
    schema = app.openapi()
    messages = [_interface(*one) for one in sorted(schema["components"]["schemas"].items())]
    resources = [
        f"    {json.dumps(path)}: {_answer(methods['get'])};"
        for path, methods in sorted(schema["paths"].items())
        if "get" in methods and path.startswith("/v1/") and "{" not in path
    ]
    lines = [_HEAD, *messages, "  interface Resources {", *resources, "  }", "}"]
    TARGET.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _interface(name: str, model: dict[str, Any]) -> str:
    # The server sends fields with defaults too, so none is optional.
    fields = [
        f"    {json.dumps(field)}: {_type(about)};"
        for field, about in model.get("properties", {}).items()
    ]
    return "\n".join([f"  interface {_name(name)} {{", *fields, "  }"])


def _name(message: str) -> str:
    """Return the name of a message; a message that is read and sent has two forms."""
    return message.removesuffix("-Output").replace("-", "")


def _answer(operation: dict[str, Any]) -> str:
    content = operation["responses"].get("200", {}).get("content", {})
    return _type(content.get("application/json", {}).get("schema", {}))


def _type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        return _name(schema["$ref"].rpartition("/")[2])
    if "anyOf" in schema:
        return " | ".join(_type(part) for part in schema["anyOf"])
    if "enum" in schema or "const" in schema:
        return " | ".join(json.dumps(one) for one in schema.get("enum", [schema.get("const")]))
    if schema.get("type") == "array":
        return f"({_type(schema.get('items', {}))})[]"
    if schema.get("type") == "object":
        patterns = schema.get("patternProperties", {}).values()
        values = next(iter(patterns), schema.get("additionalProperties"))
        return f"Record<string, {_type(values) if isinstance(values, dict) else 'any'}>"
    return "null" if schema.get("type") == "null" else _PLAIN.get(schema.get("type", ""), "any")


if __name__ == "__main__":
    main()
