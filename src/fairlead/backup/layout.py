"""Layout of a backup: a tar archive that begins with a header and ends with checksums.

A member that occurs twice counts by its last occurrence, and one without a checksum does not
count: the copy of a file that changes meanwhile is repeated, or given up.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import PurePosixPath
from typing import Any

from fairlead.model.errors import InputError

FORMAT = 1
HEADER, CHECKSUMS = "fairlead-backup.json", "checksums.json"
DATABASE, DEVICES, SECRETS = "database.db", "devices.json", "secrets.key"
JOBS, CODE_SNAPSHOTS = "jobs", "code-snapshots"
_FILES = (HEADER, CHECKSUMS, DATABASE, DEVICES, SECRETS)
_TREES = (JOBS, CODE_SNAPSHOTS)
_MAX_PARTS, _MAX_PART_BYTES = 100, 255


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """Facts about a backup, known before its content is read."""

    format: int = FORMAT
    version: str
    """version of Fairlead that made it"""
    schema: str
    """schema of the database"""
    made_at: float
    host: str
    logs: bool
    secrets: bool

    def as_bytes(self) -> bytes:
        """Return the content of the header's member."""
        return json.dumps(asdict(self), indent=1).encode() + b"\n"

    @classmethod
    def read(cls, content: bytes) -> "Header":
        """Return the header in a member; raise InputError if this version cannot read it."""
        try:
            values: dict[str, Any] = json.loads(content)
            known = {name: values[name] for name in cls.__dataclass_fields__}
            format_, schema = int(known["format"]), str(known["schema"])
        except (ValueError, TypeError, KeyError, RecursionError):
            problem = "damaged header"
            raise InputError(problem, fix="expected a file of `fairlead backup`") from None
        if format_ != FORMAT:
            problem = f"a backup of format {format_}, made by another version"
            raise InputError(problem, fix=f"expected format {FORMAT}: use that version")
        return cls(**{**known, "schema": schema})


def require_safe_name(name: str) -> PurePosixPath:
    """Return the path of a member; raise InputError if it could lead out of its directory."""
    parts = name.split("/")
    safe = all(
        part not in ("", ".", "..")
        and "\0" not in part
        and len(part.encode("utf-8", "surrogateescape")) <= _MAX_PART_BYTES
        for part in parts
    )
    if not safe or len(parts) > _MAX_PARTS or not (name in _FILES or parts[0] in _TREES):
        fix = "expected a file of `fairlead backup`"
        raise InputError(f"unexpected member {name!r}", fix=fix)
    return PurePosixPath(name)
