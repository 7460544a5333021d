"""Permissions of a server's files in a directory that other users can read."""

import stat
from pathlib import Path

from fairlead.server.config.settings import ServeSettings
from fairlead.server.data_dir import open_store
from fairlead.store import Put


def test_database_and_jobs_are_private_in_a_directory_that_others_can_read(
    tmp_path: Path,
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    data.chmod(0o755)
    store = open_store(ServeSettings(data=data))
    try:
        token = store.acquire("a test")
        assert token is not None
        store.append(token, 0, [], [Put("secret", "leases", "5ec2e7")])
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in data.iterdir()}
    finally:
        store.close()
    files = {name: mode for name, mode in modes.items() if name.startswith("fairlead.db")}
    assert {"fairlead.db", "fairlead.db-wal"} <= set(files)
    assert set(files.values()) == {0o600}
    assert modes["jobs"] == 0o700
    assert stat.S_IMODE(data.stat().st_mode) == 0o755
