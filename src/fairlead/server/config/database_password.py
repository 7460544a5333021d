"""Password of the database: from a private file or the environment, never from a flag.

Other users can read the command lines of all processes. PostgreSQL's own ways, such as PGPASSFILE
and ``~/.pgpass``, work as well: libpq reads them when no password is given here.
"""

from collections.abc import Mapping
from pathlib import Path

import sqlalchemy as sa

from fairlead.model.errors import InputError
from fairlead.server.private_files import require_private

VARIABLE = "FAIRLEAD_DATABASE_PASSWORD"
_MAX_BYTES = 4096


def database_password(
    database: str | None, file: Path | None, environ: Mapping[str, str], *, from_flag: bool
) -> str | None:
    """Return the password to add to the URL; None if the URL or libpq has it.

    ``from_flag``: the URL comes from the command line. Raises InputError with the setting's name.
    """
    variable = environ.get(VARIABLE) or None
    own = None
    if database is not None:
        try:
            own = sa.make_url(database).password
        except sa.exc.ArgumentError:  # reported with the other settings
            return None
    if own is not None and from_flag:
        raise InputError(
            "a password on the command line can be read by all users of the machine",
            fix=f"expected a URL without it, and database_password_file or {VARIABLE}",
            field="database",
        )
    if file is None:
        return variable if own is None else None
    if database is None:
        raise InputError("no database", fix="expected together with database", field=_FILE)
    if own is not None:
        fix = "expected a URL without a password"
        raise InputError("the database's URL has a password too", fix=fix, field=_FILE)
    return _read(file)


_FILE = "database_password_file"


def _read(path: Path) -> str:
    require_private(path, field=_FILE, readable=False)
    try:
        text = path.read_bytes()[: _MAX_BYTES + 1].decode("utf-8").rstrip("\r\n")
    except OSError as error:
        problem = f"cannot read {path} ({error.strerror})"
        raise InputError(problem, fix="expected a file with a password", field=_FILE) from None
    except UnicodeDecodeError:
        text = ""
    if not text or len(text) > _MAX_BYTES or "\n" in text or "\0" in text:
        problem, fix = f"{path} holds no password", "expected one line of text"
        raise InputError(problem, fix=fix, field=_FILE)
    return text
