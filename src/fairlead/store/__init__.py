"""Persistent store: events, states, documents and the scheduler's lock, in one database."""

from fairlead.store.audit import Actor, Audit, RemoveOldAudit, User
from fairlead.store.errors import DamagedLogError, FencedError, StoreError, StoreUnavailableError
from fairlead.store.event_log import LoggedEvent
from fairlead.store.restoration import Restoration
from fairlead.store.store import DATABASES, Change, Put, Remove, Store

__all__ = [
    "DATABASES",
    "Actor",
    "Audit",
    "Change",
    "DamagedLogError",
    "FencedError",
    "LoggedEvent",
    "Put",
    "Remove",
    "RemoveOldAudit",
    "Restoration",
    "Store",
    "StoreError",
    "StoreUnavailableError",
    "User",
]
