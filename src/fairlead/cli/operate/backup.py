"""``fairlead backup`` and ``fairlead restore``."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from fairlead.cli.shared.options import Json
from fairlead.cli.shared.termination import exit_on_sigterm

_DATA = Annotated[Path | None, typer.Option(help="Data directory.", show_default="~/.fairlead")]
_CONFIG = Annotated[
    Path | None,
    typer.Option(help="Settings in TOML.", show_default="DATA/fairlead.toml, if it exists"),
]
_PROGRESS_S = 5.0


def backup(
    destination: Annotated[
        Path,
        typer.Argument(
            help="New file (.tar, or .tar.gz to compress it), or a directory for a new file.",
            metavar="DEST",
        ),
    ],
    *,
    data: _DATA = None,
    config: _CONFIG = None,
    logs: Annotated[bool, typer.Option("--logs", help="Include the logs of jobs.")] = False,
    secrets: Annotated[
        bool,
        typer.Option(
            "--secrets",
            help="Include secrets.key: with it the file reveals the values of all secrets.",
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Write a backup of a server to one file, while it runs or after it was stopped.

    Run it on the server's machine as the server's user. The file holds the database (SQLite or
    PostgreSQL), the checkpoints of all jobs, code snapshots and device numbers, with checksums. It
    appears once it is complete, readable for its owner only: it holds signing keys.

    Example:  fairlead backup /backup --data /var/lib/fairlead
    """
    import os

    from fairlead.backup import BackupOptions, create_backup
    from fairlead.cli.shared.json_output import print_json
    from fairlead.cli.shared.output import messages, pluralise, printable, results
    from fairlead.server.config.loading import load_settings

    exit_on_sigterm()
    settings = load_settings({"data": data}, os.environ, config).settings
    _allow_open_files()
    options = BackupOptions(logs=logs, secrets=secrets)
    made = create_backup(
        settings.data, settings.store_url, destination, options, _progress_printer()
    )
    for warning in made.warnings:
        messages.print(f"warning: {printable(warning)}", highlight=False, soft_wrap=True)
    if as_json:
        document = {"file": str(made.path), "jobs": made.jobs, "bytes": made.size}
        print_json({**document, "warnings": [*made.warnings]})
        return
    size = f"{made.size / (1 << 20):.1f} MiB"
    text = f"{made.path}: database and files of {pluralise(made.jobs, 'job')}, {size}"
    results.print(text, highlight=False, soft_wrap=True)


def restore(
    file: Annotated[Path, typer.Argument(help="File of `fairlead backup`.", metavar="FILE")],
    *,
    data: _DATA = None,
    config: _CONFIG = None,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Move the files of an earlier server, and a copy of its PostgreSQL database, to"
            " DATA/before-restore-…; leave other files where they are.",
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Restore a backup to a data directory, on this or another machine.

    Verifies all checksums before it changes anything, and refuses a directory that holds a
    server's data or other files, or that a server uses. Run it as the server's user, then start
    the server: jobs that were running start again from their checkpoints. The audit trail names
    the restoration.

    Example:  fairlead restore fairlead-20261116T120000Z.tar --data /var/lib/fairlead
    """
    import os
    from shlex import quote

    from fairlead.backup import restore_backup
    from fairlead.cli.shared.json_output import print_json
    from fairlead.cli.shared.output import local_time, results
    from fairlead.server.config.loading import load_settings

    exit_on_sigterm()
    settings = load_settings({"data": data}, os.environ, config).settings
    done = restore_backup(
        file, settings.data, settings.store_url, force=force, progress=_progress_printer()
    )
    moved_to = None if done.moved_to is None else str(done.moved_to)
    if as_json:
        document = {"data": str(settings.data), "made_at": done.header.made_at}
        print_json({**document, "bytes": done.size, "moved_to": moved_to})
        return
    text = f"restored the backup of {local_time(done.header.made_at)} to {settings.data}"
    if moved_to is not None:
        text += f"; the earlier files are in {moved_to}"
    where = {"--data": data and settings.data, "--config": config and config.absolute()}
    options = "".join(f" {name} {quote(str(path))}" for name, path in where.items() if path)
    start = f"start it with `fairlead serve{options}`"
    results.print(f"{text}; {start}", highlight=False, soft_wrap=True)


def _allow_open_files() -> None:
    """Raise the limit of open files: all files of a gang's checkpoint are open at once."""
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _progress_printer() -> Callable[[str], None]:
    """Return a function that prints progress on stderr, the first at once, later ones seldom."""
    import time

    from fairlead.cli.shared.output import messages, printable

    printed_at = -_PROGRESS_S

    def progress(text: str) -> None:
        nonlocal printed_at
        if time.monotonic() - printed_at >= _PROGRESS_S:
            printed_at = time.monotonic()
            messages.print(printable(text), highlight=False, soft_wrap=True)

    return progress
