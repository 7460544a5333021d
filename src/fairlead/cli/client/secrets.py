"""``fairlead secret``: values that jobs get as environment variables."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from fairlead.cli.shared.options import Json

app = typer.Typer(
    help="Set, list and remove secrets of jobs, such as access tokens.\n\n"
    "Example:  fairlead secret list",
    no_args_is_help=True,
)

Name = Annotated[str, typer.Argument(help="Name of the secret, such as HF_TOKEN.")]
Tenant = Annotated[
    str | None, typer.Option(help="Tenant of the secret.", show_default="the token's tenant")
]


@app.command("set")
def set_secret(
    name: Name,
    *,
    tenant: Tenant = None,
    file: Annotated[
        Path | None,
        typer.Option(
            help="File with the value, taken as it is.", show_default="stdin, or a prompt"
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Store a secret, or replace its value; jobs use it with submit --secret NAME.

    The value comes from a file, from stdin without its last newline, or from a prompt. It is never
    an argument, because every user of the machine sees arguments.

    Example:  pass show hf | fairlead secret set HF_TOKEN
    """
    from fairlead.cli.shared.json_output import print_json
    from fairlead.client import Client
    from fairlead.server_address import secret_path

    path = secret_path(name)
    server = Client.from_environment()
    body = {"value": _read_value(file), "tenant": tenant}
    answer = server.ask("PUT", path, body)
    if as_json:
        print_json(answer)


@app.command("list")
def list_secrets(
    *,
    tenant: Annotated[str | None, typer.Option(help="Only secrets of this tenant.")] = None,
    as_json: Json = False,
) -> None:
    """List secrets without their values.

    Example:  fairlead secret list
    """
    from fairlead.cli.shared.json_output import print_json
    from fairlead.cli.shared.output import pluralise, table
    from fairlead.client import Client

    answer = Client.from_environment().get("/v1/secrets", tenant=tenant)
    if as_json:
        print_json(answer)
        return
    rows = [
        [
            row["name"],
            row["tenant"],
            _moment(row["created_at"]),
            _moment(row["changed_at"]),
            "" if row["readable"] else "sealed with another key",
        ]
        for row in answer
    ]
    heads = ["name", "tenant", "created", "last change", "problem"]
    table(pluralise(len(answer), "secret"), heads, rows, figures=False)


@app.command("remove")
def remove_secret(name: Name, *, tenant: Tenant = None) -> None:
    """Remove a secret; later leases of jobs that name it fail.

    Example:  fairlead secret remove HF_TOKEN
    """
    from urllib.parse import urlencode

    from fairlead.client import Client
    from fairlead.server_address import secret_path

    path = secret_path(name)
    query = f"?{urlencode({'tenant': tenant})}" if tenant else ""
    Client.from_environment().ask("DELETE", path + query)


def _read_value(file: Path | None) -> str:
    from fairlead.model.errors import UsageError

    try:
        if file is not None:
            return file.read_bytes().decode()
        if sys.stdin.isatty():
            return str(typer.prompt("Value", hide_input=True, err=True))
        return sys.stdin.buffer.read().decode().removesuffix("\n")
    except OSError as error:
        raise UsageError(f"--file: {file}: {error.strerror}: expected a readable file") from None
    except UnicodeDecodeError:
        raise UsageError("value: not UTF-8: expected text") from None


def _moment(at: float) -> str:
    from fairlead.cli.shared.output import local_time

    return local_time(at)
