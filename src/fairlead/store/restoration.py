"""Note in a restored database: the server that starts next learns where its data comes from.

It ends the leases of that time, whose processes are not part of a backup, and adds the restoration
to the audit trail. The note is a document, so that a backup of any schema can hold it.
"""

import json
import sqlite3
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import ClassVar

from fairlead.store.audit import Actor, Audit
from fairlead.store.store import Remove, Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Restoration:
    """A backup that was restored to this database."""

    KIND: ClassVar[str] = "restored"
    ID: ClassVar[str] = "backup"

    made_at: float
    """time of the backup"""
    made_on: str
    """machine whose server was backed up"""
    restored_at: float
    user: str
    """Unix user who has restored it"""
    uid: int

    def write(self, database: Path) -> None:
        """Write the note to a SQLite database that no server uses."""
        row = (self.KIND, self.ID, json.dumps(asdict(self)))
        with closing(sqlite3.connect(database)) as connection, connection:
            connection.execute("INSERT OR REPLACE INTO documents VALUES (?, ?, ?)", row)

    @classmethod
    def read(cls, store: Store) -> "Restoration | None":
        """Return the restoration since which no server has run; None if there is none."""
        text = store.document(cls.KIND, cls.ID)
        return None if text is None else cls(**json.loads(text))

    def changes(self, leases: int) -> tuple[Audit, Remove]:
        """Return the audit entry, and the removal of the note; ``leases``: the ended ones."""
        detail = f"backup of the server on {self.made_on}, with {leases} open leases"
        times = {"time": {"old": self.restored_at, "new": self.made_at}}
        # A user who can write the database has the rights of an admin.
        actor = Actor(self.user, "admin", f"uid {self.uid}")
        entry = Audit(self.restored_at, actor, "restore-backup", "server", detail, times)
        return entry, Remove(self.KIND, self.ID)
