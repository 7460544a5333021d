"""Persistent store: events, states, documents and the scheduler's lock, in one database."""

from fairlead.store.store import Audit, Change, FencedError, LoggedEvent, Put, Remove, Store

__all__ = ["Audit", "Change", "FencedError", "LoggedEvent", "Put", "Remove", "Store"]
