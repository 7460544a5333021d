"""The store writes each batch atomically, for one scheduler at a time, on both databases."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic.config import Config
from alembic.script import ScriptDirectory

from fairlead.store import (
    Audit,
    FencedError,
    Put,
    Remove,
    Store,
    StoreUnavailableError,
    tables,
)
from fairlead.store.schema import schema_state


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    made = Store(url)
    yield made
    made.close()


def token_of(store: Store) -> int:
    token = store.acquire("test")
    assert token is not None
    return token


def test_events_are_loaded_in_order_with_their_changes(store: Store) -> None:
    token = token_of(store)
    store.append(token, 1, ["a", "b"], [Put("job", "j1", "{}"), Audit(1.0, "me", "submit", "j1")])
    store.append(token, 3, ["c"], [Put("job", "j1", "new"), Put("job", "j2", "x")])
    store.append(token, 4, [], [Remove("job", "j2"), Remove("job", "never")])
    assert [(r.seq, r.body) for r in store.load_events(0)] == [(1, "a"), (2, "b"), (3, "c")]
    assert [r.seq for r in store.load_events(2)] == [3]
    assert store.documents("job") == {"j1": "new"}
    assert [line["subject"] for line in store.audit_trail()] == ["j1"]


def test_failed_batch_writes_nothing(store: Store) -> None:
    token = token_of(store)
    store.append(token, 1, ["a"])
    with pytest.raises(sa.exc.IntegrityError):
        store.append(token, 1, ["again"], [Put("job", "j1", "{}")])
    assert [r.body for r in store.load_events(0)] == ["a"]
    assert store.documents("job") == {}


def test_saved_state_replaces_the_events_before_it(store: Store) -> None:
    token = token_of(store)
    assert store.load_state() is None
    store.append(token, 1, ["a", "b", "c"])
    store.save_state(token, 2, "state of 2 " * 1000)
    assert store.load_state() == (2, "state of 2 " * 1000)
    assert [r.seq for r in store.load_events(2)] == [3]
    store.save_state(token, 3, "later")
    assert store.load_state() == (3, "later")
    assert list(store.load_events(3)) == []


def test_only_one_scheduler_holds_the_lock_and_the_old_one_is_fenced(url: str) -> None:
    first, second = Store(url), Store(url)
    try:
        old = token_of(first)
        first.append(old, 1, ["first"])
        assert second.acquire("other", wait_s=0.2) is None
        tokens: list[int | None] = []
        standby = threading.Thread(target=lambda: tokens.append(second.acquire("b", wait_s=90)))
        standby.start()
        time.sleep(0.3)
        began = time.monotonic()
        first.close()
        standby.join(90)
        assert tokens == [old + 1]
        assert time.monotonic() - began < 30
        with pytest.raises(FencedError):
            first.append(old, 2, ["late"])
        with pytest.raises(FencedError):
            first.save_state(old, 1, "late")
        assert [r.body for r in second.load_events(0)] == ["first"]
    finally:
        first.close()
        second.close()


def test_schema_version_is_that_of_the_last_migration(url: str) -> None:
    config = Config()
    config.set_main_option("script_location", str(Path(tables.__file__).parent / "migrations"))
    assert ScriptDirectory.from_config(config).get_current_head() == tables.SCHEMA_VERSION
    assert schema_state(url) == (None, tables.SCHEMA_VERSION)
    Store(url).close()
    assert schema_state(url) == (tables.SCHEMA_VERSION, tables.SCHEMA_VERSION)


def test_reopened_store_keeps_its_events_and_tokens(url: str) -> None:
    first = Store(url)
    first.append(token_of(first), 1, ["a"])
    first.close()
    second = Store(url)
    assert [r.body for r in second.load_events(0)] == ["a"]
    assert second.acquire("again") == 2
    second.close()


def test_a_write_to_a_full_database_names_the_directory_and_writes_nothing(tmp_path: Path) -> None:
    def limit(connection: Any, _: object) -> None:
        connection.execute("PRAGMA max_page_count = 40")

    sa.event.listen(sa.Engine, "connect", limit)
    try:
        store = Store(f"sqlite:///{tmp_path}/fairlead.db")
        token = token_of(store)
        store.append(token, 1, ["a"])
        with pytest.raises(StoreUnavailableError, match=f"disk full .* space in {tmp_path}, then"):
            store.append(token, 2, ["b" * 200_000])
        assert [event.body for event in store.load_events(0)] == ["a"]
        store.close()
    finally:
        sa.event.remove(sa.Engine, "connect", limit)
