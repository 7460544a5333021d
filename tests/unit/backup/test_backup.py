"""Backups are complete or absent, hold what tenants cannot forge, and restore to any database."""

import hashlib
import io
import itertools
import json
import os
import pwd
import resource
import tarfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from tests.support.postgres import Postgres

from fairlead import untrusted_file
from fairlead.backup import BackupOptions, create_backup, restore_backup
from fairlead.backup.writer import ArchiveWriter
from fairlead.job import checkpoint
from fairlead.model.errors import InputError
from fairlead.store import Audit, Put, Store

PLAIN = BackupOptions()
_LOCK_S = 30.0
"""PostgreSQL releases the lock of a closed connection a moment later"""


def sqlite_url(data: Path) -> sa.URL:
    return sa.URL.create("sqlite", database=str(data / "fairlead.db"))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Return the data directory of a server with one job."""
    made = tmp_path / "data"
    (made / "jobs/j1/checkpoint").mkdir(parents=True)
    store = Store(sqlite_url(made))
    token = store.acquire("test")
    assert token is not None
    store.append(token, 1, ["an event"], [Put("job", "j1", "{}")])
    store.close()
    (made / "devices.json").write_text("{}")
    (made / "secrets.key").write_text("key")
    return made


def commit(directory: Path, lease: int, steps: int, ranks: int = 1) -> None:
    checkpoint.raise_fence(str(directory), lease)
    for rank in range(ranks):
        checkpoint.write(str(directory), lease, steps, rank, b"%d" % steps)
    checkpoint.commit(str(directory), lease, steps, ranks)


@pytest.fixture
def empty_postgres(postgres: Postgres) -> sa.URL:
    return sa.make_url(postgres.database())


def test_the_database_of_a_writing_server_is_copied_at_one_moment_and_fits_both_kinds(
    url: str, tmp_path: Path, empty_postgres: sa.URL
) -> None:
    store, stop = Store(url), threading.Event()
    token = store.acquire("test")
    assert token is not None
    last = 0

    def write() -> None:
        nonlocal last
        for number in itertools.takewhile(lambda _: not stop.is_set(), itertools.count(1)):
            audit = Audit(float(number), "ann", "act", f"{number}")
            store.append(token, number, [f"event {number}"], [Put("a", "n", f"{number}"), audit])
            last = number

    def wait_for_writes(*_: object) -> None:
        """Wait until the server has written twice, between the reads of two tables."""
        until, before = time.monotonic() + 30, last
        if threading.current_thread() is writer:
            return
        while last < before + 2 and time.monotonic() < until:
            time.sleep(0.001)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        wait_for_writes()
        data = tmp_path / "data"
        data.mkdir()
        sa.event.listen(sa.Engine, "after_cursor_execute", wait_for_writes)
        made = create_backup(data, sa.make_url(url), tmp_path / "one.tar.gz", PLAIN)
    finally:
        sa.event.remove(sa.Engine, "after_cursor_execute", wait_for_writes)
        stop.set()
        writer.join()
        store.close()
    targets = sqlite_url(tmp_path / "to"), empty_postgres
    for number, target in enumerate(targets):
        restore_backup(made.path, tmp_path / ("to", "other")[number], target)
        restored = Store(target)
        copied = int(restored.document("a", "n") or "")
        assert [event.seq for event in restored.load_events(0)] == [*range(1, copied + 1)]
        result = restored.verify_audit_trail()
        assert (result.problem, result.entries) == (None, copied)
        assert restored.acquire("next", wait_s=_LOCK_S) == token + 1
        restored.close()
    with pytest.raises(Exception, match="expected an empty database, or --force"):
        restore_backup(made.path, tmp_path / "third", empty_postgres)
    check_replacement(made.path, tmp_path / "third", empty_postgres)


def check_replacement(archive: Path, data: Path, url: sa.URL) -> None:
    """Check that ``force`` keeps a copy of a PostgreSQL database and fences its server."""
    earlier = Store(url)
    token = earlier.acquire("earlier")
    assert token is not None
    last = int(earlier.document("a", "n") or "")
    earlier.append(token, last + 1, ["later"], [Put("a", "n", "later")])
    with pytest.raises(InputError, match="in use by a server"):
        restore_backup(archive, data, url, force=True)
    earlier.close()
    moved = restore_backup(archive, data, url, force=True).moved_to
    assert moved is not None
    copied, replaced = Store(f"sqlite:///{moved / 'database.db'}"), Store(url)
    assert (copied.document("a", "n"), replaced.document("a", "n")) == ("later", str(last))
    assert (replaced.acquire("next", wait_s=_LOCK_S) or 0) > token
    for store in (copied, replaced):
        store.close()


def test_a_checkpoint_that_is_replaced_meanwhile_is_copied_as_one_generation(
    data: Path, tmp_path: Path
) -> None:
    directory, stop = data / "jobs/j1/checkpoint", threading.Event()
    (directory / "of-the-user").write_text("mine")
    commit(directory, 5, 1, ranks=3)

    def train() -> None:
        steps = 1
        while not stop.is_set():
            steps += 1
            commit(directory, 5 + steps, steps, ranks=3)

    trainer = threading.Thread(target=train)
    trainer.start()
    try:
        made = [
            create_backup(data, sqlite_url(data), tmp_path / f"{i}.tar", PLAIN) for i in range(8)
        ]
    finally:
        stop.set()
        trainer.join()
    for number, backup in enumerate(made):
        target = tmp_path / f"to-{number}"
        restore_backup(backup.path, target, sqlite_url(target))
        restored = str(target / "jobs/j1/checkpoint")
        latest = checkpoint.latest(restored)
        if latest is None:
            assert "replaced too often" in backup.warnings[0]
            continue
        assert latest.lease == 0  # before every lease of the restored server
        read = {checkpoint.read(restored, rank) for rank in range(3)}
        assert read == {b"%d" % latest.steps}
        # The numbers of later leases and the fence belong to the lost server.
        commit(Path(restored), 1, latest.steps + 1, ranks=3)
        assert (Path(restored) / "of-the-user").read_text() == "mine"


@pytest.mark.parametrize(("replaced", "complete"), [(0, True), (4, True), (5, False)])
def test_a_checkpoint_is_left_out_only_if_five_in_a_row_are_replaced_while_they_are_opened(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, replaced: int, complete: bool
) -> None:
    directory, open_regular, steps = data / "jobs/j1/checkpoint", untrusted_file.open_regular, 1
    commit(directory, 1, steps, ranks=3)

    def replace_checkpoint() -> None:
        nonlocal steps
        steps += 1
        commit(directory, steps, steps, ranks=3)

    def open_while_training(path: str | os.PathLike[str], *more: Any, **options: Any) -> int:
        if str(path) == f"{steps}-{steps}.1.ckpt" and steps <= replaced:
            replace_checkpoint()  # the file of rank 0 is open
        opened = open_regular(path, *more, **options)
        if str(path) == f"{steps}-{steps}.2.ckpt":
            replace_checkpoint()  # all files are open, and none has been read
        return opened

    monkeypatch.setattr(untrusted_file, "open_regular", open_while_training)
    made = create_backup(data, sqlite_url(data), tmp_path / "b.tar", PLAIN)
    restore_backup(made.path, tmp_path / "to", sqlite_url(tmp_path / "to"))
    restored = str(tmp_path / "to/jobs/j1/checkpoint")
    latest = checkpoint.latest(restored)
    if complete:
        assert made.warnings == ()
        assert (latest is not None and latest.steps) == replaced + 1 == steps - 1
        assert {checkpoint.read(restored, rank) for rank in range(3)} == {b"%d" % (replaced + 1)}
    else:
        assert latest is None
        assert "replaced too often" in made.warnings[0]


@contextmanager
def limited(which: int, value: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(which)
    resource.setrlimit(which, (value, hard))
    try:
        yield
    finally:
        resource.setrlimit(which, (soft, hard))


def test_files_of_hostile_tenants_are_left_out_and_named(data: Path, tmp_path: Path) -> None:
    directory, secret = data / "jobs/j1/checkpoint", tmp_path / "secret"
    secret.write_text("of another user")
    (directory / "link").symlink_to(secret)
    (directory / "directory").symlink_to(tmp_path)
    os.mkfifo(directory / "fifo")
    odd = os.fsencode(directory) + b"/odd\xff\n name"
    Path(os.fsdecode(odd)).write_text("kept")
    deep = directory
    for _ in range(40):
        deep /= "d"
    deep.mkdir(parents=True)
    (deep / "file").write_text("too deep")
    (data / "jobs/j2").symlink_to(tmp_path)
    if os.geteuid() == 0:
        os.chown(secret, 12345, 12345)
        os.link(secret, directory / "hard-link")
    with (directory / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    (data / "jobs/j3/checkpoint").mkdir(parents=True)
    names = [f"1-1.{rank}.ckpt" for rank in range(300)]
    for name in names:
        (data / "jobs/j3/checkpoint" / name).touch()
    latest = {"lease": 1, "steps": 1, "files": names}
    (data / "jobs/j3/checkpoint/latest.json").write_text(json.dumps(latest))
    (directory / "latest.json").symlink_to(secret)
    with limited(resource.RLIMIT_NOFILE, 200):
        made = create_backup(data, sqlite_url(data), tmp_path / "b.tar", PLAIN)
    target = tmp_path / "to"
    restore_backup(made.path, target, sqlite_url(target))
    files = [path for path in (target / "jobs").rglob("*") if not path.is_dir()]
    assert [os.fsencode(path.name) for path in files] == [b"odd\xff\n name"]
    text = "\n".join(made.warnings)
    for name in ("checkpoint/link", "checkpoint/directory", "fifo", "/d: left out", "jobs/j2"):
        assert name in text
    assert "sparse: a sparse file" in text
    assert "jobs/j3/checkpoint: left out (its checkpoint has too many files)" in text
    assert os.geteuid() != 0 or "hard-link" in text


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files to another user")
def test_root_restores_files_for_the_users_they_belong_to(data: Path, tmp_path: Path) -> None:
    nobody, server = pwd.getpwnam("nobody").pw_uid, pwd.getpwnam("daemon").pw_uid
    directory = data / "jobs/j1/checkpoint"
    (directory / "a/b").mkdir(parents=True)
    (directory / "a/b/file").write_text("x")
    commit(directory, 1, 1)
    for path in (directory, *directory.rglob("*")):
        os.chown(path, nobody, -1)
    made = create_backup(data, sqlite_url(data), tmp_path / "b.tar", PLAIN)
    assert made.warnings == ()
    target = tmp_path / "to"
    target.mkdir(mode=0o700)
    os.chown(target, server, -1)
    restore_backup(made.path, target, sqlite_url(target))
    restored = target / "jobs/j1/checkpoint"
    tenants = {path.stat().st_uid for path in (restored, *restored.rglob("*"))}
    assert tenants == {nobody}
    others = (target / "jobs", target / "jobs/j1", target / "fairlead.db", target / "devices.json")
    assert {path.stat().st_uid for path in others} == {server}
    assert checkpoint.read(str(restored), 0) == b"1"


class Changing(io.FileIO):
    """A file that another process changes at the moment it is first read."""

    def __init__(self, path: Path, size: int) -> None:
        super().__init__(path)
        self._path, self._size = path, size

    def read(self, size: int | None = -1, /) -> bytes:
        os.truncate(self._path, self._size)
        return super().read(size)


def test_a_copy_of_a_file_that_shrinks_does_not_count_and_a_later_one_replaces_it(
    tmp_path: Path,
) -> None:
    path = tmp_path / "busy"

    def copied(name: str, becomes: int) -> str:
        path.write_bytes(b"x" * 2000)
        os.utime(path, ns=(1, 1))
        with Changing(path, becomes) as file:
            return archive.add_file(name, file)

    with ArchiveWriter(tmp_path / "b.tar") as archive:
        assert copied("jobs/a", 10) == "short"
        assert copied("jobs/b", 10) == "short"
        assert copied("jobs/a", 3000) == "changed"
        path.write_bytes(b"y" * 2000)
        with path.open("rb") as file:
            assert archive.add_file("jobs/a", file) == "same"
        archive.commit()
    with tarfile.open(tmp_path / "b.tar") as made:
        names = made.getnames()
        listed = json.load(made.extractfile("checksums.json"))["sha256"]  # type: ignore[arg-type]
    assert names.count("jobs/a") == 3
    assert listed == {"jobs/a": hashlib.sha256(b"y" * 2000).hexdigest()}


def test_secrets_and_logs_are_in_a_backup_only_if_wanted(data: Path, tmp_path: Path) -> None:
    (data / "jobs/j1/logs").mkdir()
    (data / "jobs/j1/logs/1.0.log").write_text("printed")
    (data / "jobs/j1/code").mkdir()
    (data / "admin.token").write_text("never")
    for options, more in (
        (PLAIN, set()),
        (BackupOptions(logs=True, secrets=True), {"secrets.key", "jobs/j1/logs/1.0.log"}),
    ):
        made = create_backup(data, sqlite_url(data), tmp_path / f"{len(more)}.tar", options)
        with tarfile.open(made.path) as archive:
            names = set(archive.getnames())
        always = {"fairlead-backup.json", "database.db", "devices.json", "checksums.json"}
        assert names == always | more
        assert made.path.stat().st_mode & 0o777 == 0o600


def test_a_full_disk_leaves_no_part_of_a_backup_or_of_a_restoration(
    data: Path, tmp_path: Path
) -> None:
    (data / "jobs/j1/checkpoint/big").write_bytes(os.urandom(3_000_000))
    backups, target = tmp_path / "backups", tmp_path / "to"
    backups.mkdir()
    with limited(resource.RLIMIT_FSIZE, 2_000_000), pytest.raises(OSError, match="File too large"):
        create_backup(data, sqlite_url(data), backups, PLAIN)
    assert list(backups.iterdir()) == []
    made = create_backup(data, sqlite_url(data), backups, PLAIN)
    with limited(resource.RLIMIT_FSIZE, 2_000_000), pytest.raises(OSError, match="File too large"):
        restore_backup(made.path, target, sqlite_url(target))
    assert [path.name for path in target.iterdir()] == ["fairlead.lock"]
    restore_backup(made.path, target, sqlite_url(target))


def test_a_backup_of_nothing_or_to_a_bad_place_is_refused(data: Path, tmp_path: Path) -> None:
    (tmp_path / "old.tar").touch()
    for where, to, problem in (
        (tmp_path / "none", tmp_path / "b.tar", "no database at"),
        (data, tmp_path / "b.zip", "a name that ends with .tar"),
        (data, tmp_path / "old.tar", "exists"),
        (data, tmp_path / "none/b.tar", "no directory"),
    ):
        with pytest.raises(Exception, match=problem):
            create_backup(where, sqlite_url(where), to, PLAIN)
    (data / "fairlead.db").write_bytes(b"not a database" * 100)
    with pytest.raises(Exception, match="cannot be copied"):
        create_backup(data, sqlite_url(data), tmp_path / "b.tar", PLAIN)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "old.tar"]


def test_the_header_names_version_schema_time_and_host(data: Path, tmp_path: Path) -> None:
    made = create_backup(data, sqlite_url(data), tmp_path / "b.tar.gz", PLAIN)
    with tarfile.open(made.path) as archive:
        file = archive.extractfile("fairlead-backup.json")
        assert file is not None
        header = json.load(file)
    assert set(header) == {
        *("format", "version", "schema", "made_at", "host", "logs", "secrets"),
    }
    assert header["host"] == os.uname().nodename
