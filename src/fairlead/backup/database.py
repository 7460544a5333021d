"""Consistent copies of a running server's database, always as a SQLite file.

SQLite copies itself by its online backup. The tables of PostgreSQL are read in one transaction
that sees one moment. So a backup restores to either database, without tools of the database.
"""

import sqlite3
from contextlib import closing
from pathlib import Path

import sqlalchemy as sa

from fairlead.model.errors import InputError
from fairlead.store import Store, StoreError, tables
from fairlead.store.waiting import reason_of

_PAGE = 1000
_WAIT_S = 60.0


def sqlite_file(url: sa.URL) -> Path | None:
    """Return the file of a SQLite database; None for another database."""
    return Path(url.database or "") if url.get_backend_name() == "sqlite" else None


def copy_database(url: sa.URL, target: Path) -> str:
    """Copy a database to a new SQLite file, whether or not a server uses it; return its schema."""
    source = sqlite_file(url)
    if source is not None:
        _copy_sqlite(source, target)
    else:
        _copy_tables(url, sa.URL.create("sqlite", database=str(target)))
    return schema_of(target)


def schema_of(path: Path) -> str:
    """Return the schema of a SQLite database; raise InputError if it holds no server's data."""
    engine = sa.create_engine(sa.URL.create("sqlite", database=str(path)))
    try:
        with engine.connect() as connection:
            schema = tables.schema(connection)
    except sa.exc.DatabaseError as error:
        raise StoreError(f"database: damaged ({reason_of(error)})") from None
    finally:
        engine.dispose()
    if schema is None:
        problem, fix = "no tables of a server", "expected the database of a server"
        raise InputError(problem, fix=fix, field="database")
    return schema


def load_database(source: Path, url: sa.URL, keep_in: Path | None = None) -> None:
    """Copy a SQLite file into a database, instead of all that it holds.

    A database with a server's data is first copied to the new SQLite file ``keep_in``; without
    that, raises InputError.
    """
    copied = sa.URL.create("sqlite", database=str(source))
    Store(copied).close()  # migrates it
    store = Store(url)
    try:
        token = store.acquire("restore")
        if token is None:
            problem, fix = "in use by a server", "stop the server first"
            raise InputError(problem, fix=fix, field="database")
        if _is_used(url):
            if keep_in is None:
                problem = "holds the data of a server"
                fix = "expected an empty database, or --force, which keeps a copy of its data"
                raise InputError(problem, fix=fix, field="database")
            copy_database(url, keep_in)
        _copy_rows(copied, url, least_token=token)
    finally:
        store.close()


def _is_used(url: sa.URL) -> bool:
    """Return whether a database holds the data of a server."""
    documents = tables.documents.c
    queries = (
        sa.select(documents.kind).where(documents.kind != "audit"),  # a new one has a head
        sa.select(tables.events.c.seq),
        sa.select(tables.states.c.seq),
    )
    engine = sa.create_engine(url)
    try:
        with engine.connect() as connection:
            return any(connection.execute(query.limit(1)).first() for query in queries)
    finally:
        engine.dispose()


def _copy_sqlite(source: Path, target: Path) -> None:
    if not source.is_file():
        problem, fix = f"no database at {source}", "expected the data directory of a server"
        raise InputError(problem, fix=fix, field="data")
    # Without a limit on pages the copy is one read transaction, which blocks no writer.
    try:
        with (
            closing(sqlite3.connect(f"{source.absolute().as_uri()}?mode=ro", uri=True)) as old,
            closing(sqlite3.connect(target)) as new,
        ):
            old.execute(f"PRAGMA busy_timeout = {int(_WAIT_S * 1000)}")
            old.backup(new)
            damage = new.execute("PRAGMA quick_check(1)").fetchone()[0]
            new.execute("PRAGMA journal_mode = DELETE")  # one file, without a log beside it
    except sqlite3.Error as error:
        raise StoreError(f"{source}: cannot be copied ({error})") from None
    if damage != "ok":
        raise StoreError(f"{source}: damaged ({damage}): restore an earlier backup")


def _copy_tables(url: sa.URL, target: sa.URL) -> None:
    made = sa.create_engine(target)
    with made.begin() as new:
        tables.metadata.create_all(new)
        new.execute(sa.text("CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL)"))
        version = {"version": tables.SCHEMA_VERSION}
        new.execute(sa.text("INSERT INTO alembic_version VALUES (:version)"), version)
    made.dispose()
    try:
        _copy_rows(url, target)
    except sa.exc.DBAPIError as error:
        raise StoreError(f"database: cannot be copied ({reason_of(error)})") from None


def _copy_rows(source: sa.URL, target: sa.URL, least_token: int = 0) -> None:
    """Replace all rows of a database by those of another, in one transaction on each side.

    Its fencing token becomes at least ``least_token``: an earlier server must not write to it.
    """
    engines = sa.create_engine(source), sa.create_engine(target)
    isolation = "SERIALIZABLE" if source.get_backend_name() == "sqlite" else "REPEATABLE READ"
    try:
        with (
            engines[0].connect().execution_options(isolation_level=isolation) as old,
            engines[1].begin() as new,
        ):
            schema = tables.schema(old)
            if schema != tables.SCHEMA_VERSION:
                problem = f"schema {schema}, but this version reads {tables.SCHEMA_VERSION}"
                raise InputError(problem, fix="use the version of the server", field="database")
            for table in tables.metadata.sorted_tables:
                new.execute(sa.delete(table))
                streamed = old.execution_options(yield_per=_PAGE).execute(sa.select(table))
                for rows in streamed.mappings().partitions():
                    new.execute(sa.insert(table), [dict(row) for row in rows])
            token = tables.lock.c.token
            raised = sa.update(tables.lock).where(token < least_token)
            new.execute(raised.values(token=least_token))
    finally:
        for engine in engines:
            engine.dispose()
