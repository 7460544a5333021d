"""The audit trail is a hash chain: changed, removed and added entries are noticed."""

from collections.abc import Callable
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.config import Config

from fairlead.store import Actor, Audit, Put, Store, tables
from fairlead.store.audit import FIRST_HASH, changed_values

ADMIN = Actor("ann", "admin", "3f9a0c12be77")


def fill(store: Store, batches: int = 3) -> int:
    token = store.acquire("test")
    assert token is not None
    for batch in range(batches):
        changes = {"weight": {"old": 1.0, "new": 2.5}}
        store.append(
            token,
            0,
            [],
            [
                Audit(1e9 + batch / 3, ADMIN, "tenant", "vision", changes=changes),
                Put("job", f"j{batch}", "{}"),
                Audit(2.0, "no actor", "submit", f"j{batch}", "ünï"),
            ],
        )
    return token


def tamper(url: str, *statements: sa.Executable) -> None:
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        for statement in statements:
            connection.execute(statement)
    engine.dispose()


def test_entries_hold_author_role_and_values_in_an_intact_chain(url: str) -> None:
    store = Store(url)
    assert store.verify_audit_trail().problem is None
    assert store.verify_audit_trail().newest_hash == FIRST_HASH
    token = fill(store)
    newest, before = store.audit_trail(limit=2)
    expected = {"who": "ann", "role": "admin", "actor": ADMIN.id, "action": "tenant", "seq": 5}
    assert expected.items() <= before.items()
    assert before["changes"] == {"weight": {"old": 1.0, "new": 2.5}}
    assert (newest["who"], newest["role"], newest["changes"]) == ("no actor", "", {})
    result = store.verify_audit_trail()
    assert (result.problem, result.entries, result.newest_hash) == (None, 6, newest["hash"])
    assert store.verify_audit_trail(newest=2).entries == 2
    store.append(token, 1, ["a"])
    with pytest.raises(sa.exc.IntegrityError):  # a failed batch leaves the chain as it was
        store.append(token, 1, ["again"], [Audit(3.0, ADMIN, "lost", "x")])
    store.append(token, 2, ["b"], [Audit(4.0, ADMIN, "kept", "x")])
    store.close()
    reopened = Store(url)
    assert reopened.verify_audit_trail().entries == 7
    assert reopened.verify_audit_trail().problem is None
    reopened.close()


AUDIT, HEAD = tables.audit, tables.documents
ATTACKS: dict[str, tuple[Callable[[], list[sa.Executable]], str]] = {
    "change a value": (
        lambda: [sa.update(AUDIT).where(AUDIT.c.seq == 3).values(changes="")],
        "entry 3",
    ),
    "change a role": (
        lambda: [sa.update(AUDIT).where(AUDIT.c.seq == 2).values(role="viewer")],
        "entry 2",
    ),
    "change a time": (
        lambda: [sa.update(AUDIT).where(AUDIT.c.seq == 6).values(at=3.0)],
        "entry 6",
    ),
    "remove from the middle": (lambda: [sa.delete(AUDIT).where(AUDIT.c.seq == 3)], "entry 4"),
    "remove the first": (lambda: [sa.delete(AUDIT).where(AUDIT.c.seq == 1)], "entry 2"),
    "remove the last": (lambda: [sa.delete(AUDIT).where(AUDIT.c.seq == 6)], "entry 6: missing"),
    "remove all": (lambda: [sa.delete(AUDIT)], "entry 6: missing"),
    "remove the last and the head": (
        lambda: [
            sa.delete(AUDIT).where(AUDIT.c.seq == 6),
            sa.delete(HEAD).where(HEAD.c.kind == "audit"),
        ],
        "newest entry is missing",
    ),
    "add one": (
        lambda: [
            sa.insert(AUDIT).values(
                {"seq": 7, "at": 1.0, "who": "x", "action": "a", "subject": "s", "detail": ""}
            )
        ],
        "entry 7",
    ),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_tampering_is_noticed(tmp_path: Path, attack: str) -> None:
    url = f"sqlite:///{tmp_path / 'fairlead.db'}"
    store = Store(url)
    token = fill(store)
    statements, problem = ATTACKS[attack]
    tamper(url, *statements())
    assert problem in str(store.verify_audit_trail().problem)
    if attack != "add one":  # a later entry does not mend the chain
        store.append(token, 0, [], [Audit(9.0, ADMIN, "later", "x")])
        assert store.verify_audit_trail().problem is not None
    store.close()


def test_the_migration_chains_old_entries(url: str) -> None:
    config = Config()
    config.set_main_option("script_location", str(Path(tables.__file__).parent / "migrations"))
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "0001")
        old = sa.text(
            "INSERT INTO audit (seq, at, who, action, subject, detail)"
            " VALUES (:seq, 1.1, 'ann', 'submit', :subject, '')"
        )
        for seq in (2, 3, 7):  # PostgreSQL leaves gaps after failed batches
            connection.execute(old, {"seq": seq, "subject": f"j{seq}"})
    engine.dispose()
    store = Store(url)
    assert store.verify_audit_trail().entries == 3
    fill(store, 1)
    result = store.verify_audit_trail()
    assert (result.problem, result.entries) == (None, 5)
    assert [entry["seq"] for entry in store.audit_trail()] == [9, 8, 7, 3, 2]
    tamper(url, sa.update(AUDIT).where(AUDIT.c.seq == 3).values(subject="j4"))
    assert "entry 3" in str(store.verify_audit_trail().problem)
    store.close()


def test_changed_values_lists_only_differences() -> None:
    other = Actor("ann", "viewer", ADMIN.id)
    assert changed_values(ADMIN, other) == {"role": {"old": "admin", "new": "viewer"}}
    assert changed_values(None, other)["name"] == {"old": None, "new": "ann"}
