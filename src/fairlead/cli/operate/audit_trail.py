"""``fairlead audit-trail``: every change with its author and values."""

from typing import Annotated, Any

import typer

from fairlead.cli.shared.options import Json

app = typer.Typer()

_PAGE = 1000
"""most entries of one request"""
_TIME = "a time such as 2026-11-16T14:00, in this machine's zone unless it names another"


@app.callback(invoke_without_command=True)
def show_audit_trail(
    context: typer.Context,
    *,
    limit: Annotated[int, typer.Option(help="Number of entries.", min=1)] = 100,
    before: Annotated[
        int | None, typer.Option(help="Show entries before this number.", min=0)
    ] = None,
    author: Annotated[
        str | None, typer.Option(help="Only changes of this author: a name or the id of a token.")
    ] = None,
    role: Annotated[str | None, typer.Option(help="Only authors with this role.")] = None,
    action: Annotated[
        str | None, typer.Option(help="Only this action: submit, policy, tenant, token, denied, …")
    ] = None,
    subject: Annotated[
        str | None, typer.Option(help="Only changes of this job, tenant, node or token.")
    ] = None,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help=f"Entries from {_TIME}.")
    ] = None,
    until: Annotated[
        str | None, typer.Option(metavar="TIME", help="Entries before a time.")
    ] = None,
    csv: Annotated[bool, typer.Option("--csv", help="Write comma-separated values.")] = False,
    as_json: Json = False,
) -> None:
    """Show and verify the audit trail.

    Without a subcommand, show the newest entries: author, role, action, subject, and old and new
    values of each change, and denied attempts.

    Example:  fairlead audit-trail --limit 20

    Example:  fairlead audit-trail --author alice --since 2026-11-01 --csv
    """
    if context.invoked_subcommand is not None:
        return
    from fairlead.cli.shared.json_output import print_json
    from fairlead.model.errors import UsageError

    if csv and as_json:
        raise UsageError("--csv: not with --json: expected one of them")
    wanted = {"author": author, "role": role, "action": action, "subject": subject}
    times = {"since": _seconds(since, "--since"), "until": _seconds(until, "--until")}
    entries = _read(limit, before, {**wanted, **times})
    if as_json:
        print_json(entries)
    elif csv:
        _print_csv(entries)
    else:
        _print_table(entries)


@app.command("verify")
def verify_audit_trail(as_json: Json = False) -> None:
    """Check the hash chain of the audit trail; exit with 1 if entries were changed or removed.

    Example:  fairlead audit-trail verify
    """
    from fairlead.cli.shared.json_output import print_json
    from fairlead.client import Client

    answer = Client.from_environment().get("/v1/audit/verify")
    if as_json:
        print_json(answer)
    elif answer["intact"]:
        entries = "1 entry" if answer["entries"] == 1 else f"{answer['entries']} entries"
        typer.echo(f"intact: {entries}, newest hash {answer['newest_hash']}")
    else:
        typer.echo(f"broken: {answer['problem']}", err=True)
    if not answer["intact"]:
        raise typer.Exit(1)


def _read(limit: int, before: int | None, wanted: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the newest entries that are wanted, in pages."""
    from fairlead.client import Client

    server = Client.from_environment()
    entries: list[dict[str, Any]] = []
    while len(entries) < limit:
        size = min(limit - len(entries), _PAGE)
        page = server.get("/v1/audit", limit=size, before=before, **wanted)
        entries += page
        if len(page) < size:
            break
        before = page[-1]["seq"]
    return entries


def _seconds(text: str | None, flag: str) -> float | None:
    """Return a time in seconds since 1970."""
    from datetime import datetime

    from fairlead.model.errors import UsageError

    if text is None:
        return None
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        raise UsageError(f"{flag}: {text!r} is not a time: expected {_TIME}") from None


def _print_table(entries: list[dict[str, Any]]) -> None:
    from fairlead.cli.shared.output import local_time, table

    rows = [
        [
            str(row["seq"]),
            local_time(row["at"]),
            " ".join(filter(None, (row["who"], row["role"], row["actor"]))),  # lang: ok
            row["action"],
            row["subject"],
            _values(row["changes"]) or row["detail"],
        ]
        for row in entries
    ]
    heads = ["entry", "time", "author", "action", "subject", "values"]
    table("audit trail", heads, rows, figures=False)


def _print_csv(entries: list[dict[str, Any]]) -> None:
    import json
    from datetime import UTC, datetime

    from fairlead.cli.shared.csv_output import print_csv

    names = ("entry", "time", "author", "role", "actor", "action", "subject", "detail", "changes")
    print_csv(
        names,
        (
            {
                **row,
                "entry": row["seq"],
                "time": datetime.fromtimestamp(row["at"], UTC).isoformat(timespec="milliseconds"),
                "author": row["who"],  # lang: ok
                "changes": json.dumps(row["changes"]) if row["changes"] else "",
            }
            for row in entries
        ),
    )


def _values(changes: dict[str, Any]) -> str:
    """Return the changed values; of something new, those that it has."""
    texts = []
    for name, each in changes.items():
        old, new = (_value(name, each[key]) for key in ("old", "new"))
        if old != new:
            texts.append(f"{name}: {old} → {new}" if old else f"{name}: {new}")
    return ", ".join(texts)


def _value(name: str, value: object) -> str:
    from fairlead.cli.shared.output import local_time

    if isinstance(value, float) and (name == "time" or name.endswith("_at")):
        return local_time(value)
    return "" if value in (None, [], {}) else str(value)
