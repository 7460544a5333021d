"""What lasts: events, states, documents and the scheduler's lock, in SQLite or PostgreSQL."""

from fairlead.store.store import Audit, Change, FencedError, Put, Record, Remove, Store

__all__ = ["Audit", "Change", "FencedError", "Put", "Record", "Remove", "Store"]
