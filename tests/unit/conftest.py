"""A private PostgreSQL, and empty databases on it and in SQLite, for tests that want one."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.postgres import Postgres, missing


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    if missing():
        pytest.skip(missing())
    made = Postgres()
    yield made
    made.stop()


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the URL of an empty database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'fairlead.db'}"
    server: Postgres = request.getfixturevalue("postgres")
    return server.database()
