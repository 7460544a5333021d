"""The data directory at start: created, private, and cleared of damaged files."""

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

import sqlalchemy as sa
import structlog

from fairlead.engines.keeper import lease_dir
from fairlead.model.errors import InputError
from fairlead.quarantine import quarantine_file, quarantine_text
from fairlead.server.config.settings import ServeSettings
from fairlead.server.private_files import SECRET_FILES, require_private, require_private_data
from fairlead.store import Change, Remove, Store, StoreError
from fairlead.store.waiting import reason_of

log = structlog.get_logger("fairlead.serve")

_LEASE_FILES = ("order.json", "exit.json", "members.json", "progress.json", "stop")


def open_store(settings: ServeSettings) -> Store:
    """Open the store, create it if necessary; raise InputError with the setting at fault."""
    try:
        settings.data.mkdir(parents=True, exist_ok=True, mode=0o700)
        (settings.data / "jobs").mkdir(exist_ok=True, mode=0o700)
    except ValueError:
        raise InputError("has a NUL", fix="expected a directory", field="data") from None
    except OSError as error:
        problem = f"cannot create directory {settings.data} ({error.strerror})"
        raise InputError(problem, fix="expected a writable directory", field="data") from None
    _require_private(settings)
    try:
        _make_private(settings.store_url)
        return Store(settings.store_url, wait_s=settings.database_wait_s)
    except StoreError:
        raise
    except (sa.exc.DatabaseError, sa.exc.NoSuchModuleError, ImportError) as error:
        fix = "check that the database runs and that URL, user and password are right"
        problem = f"cannot be opened ({reason_of(error)})"
        raise InputError(problem, fix=fix, field="database") from None


def _require_private(settings: ServeSettings) -> None:
    """Raise InputError if other users could change the server's files, or read its secrets."""
    require_private_data(settings.data)
    for name in SECRET_FILES:
        require_private(settings.data / name, field="data", readable=False)
    database = _sqlite_file(settings.store_url)
    if database is not None:
        for suffix in ("", "-wal", "-shm", "-journal"):
            file = database.with_name(database.name + suffix)
            require_private(file, field="database")


def _make_private(store_url: sa.URL) -> None:
    """Create a new SQLite database with access for its owner only: it holds secrets.

    SQLite creates its other files with the same mode.
    """
    database = _sqlite_file(store_url)
    if database is not None:
        with contextlib.suppress(OSError):  # opening the store reports the problem
            os.close(os.open(database, os.O_WRONLY | os.O_CREAT, 0o600))


def _sqlite_file(store_url: sa.URL) -> Path | None:
    name = store_url.database or ":memory:"
    is_file = store_url.get_backend_name() == "sqlite" and not name.startswith((":", "file:"))
    return Path(name) if is_file else None


def quarantine_damaged_files(data: Path) -> None:
    """Move damaged control files of leases aside; only their own leases end as lost."""
    root = data / "leases"
    if not root.is_dir():
        return
    for directory in lease_dir.list_leases(root).values():
        for name in _LEASE_FILES:
            path = directory / name
            # In a directory of another user the keeper of that user decides.
            with contextlib.suppress(OSError):
                if _is_own(directory) and _exists(path) and lease_dir.read_json(path) is None:
                    quarantine_file(data, path, "not a JSON object in a regular file")


def readable_documents(
    store: Store, token: int, kind: str, read: Callable[[str], object], data: Path
) -> dict[str, str]:
    """Return the documents that ``read`` accepts; the others move to the quarantine."""
    documents = store.documents(kind)
    damaged: list[Change] = []
    for name, body in tuple(documents.items()):
        try:
            read(body)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            quarantine_text(data, f"{kind}-{name}.json", documents.pop(name), str(error))
            damaged.append(Remove(kind, name))
    if damaged:
        store.append(token, 0, [], damaged)
    return documents


def accept_log_until(store: Store, token: int, last: int, data: Path) -> None:
    """Remove the events after the last intact one, if that is ``last``; keep a copy of them.

    Does nothing if the log is complete, so that a supervisor may repeat the start.
    """
    removed = store.cut_log(token, last)
    if removed:
        name = f"events-after-{last}.jsonl"
        quarantine_text(data, name, "\n".join(removed) + "\n", "events after a damaged one")
    else:
        log.info("log.complete", accepted=last)


def _is_own(directory: Path) -> bool:
    return directory.stat().st_uid == os.geteuid()


def _exists(path: Path) -> bool:
    return path.is_symlink() or path.exists()
