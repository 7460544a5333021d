"""A restoration checks everything first: no damaged, hostile or unfit backup changes anything."""

import fcntl
import hashlib
import io
import json
import tarfile
from pathlib import Path

import pytest
import sqlalchemy as sa

from fairlead.backup import BackupOptions, create_backup, restore_backup
from fairlead.engines.keeper import lease_dir
from fairlead.model.errors import InputError
from fairlead.store import Put, Store

Members = list[tuple[tarfile.TarInfo, bytes]]


def sqlite_url(data: Path) -> sa.URL:
    return sa.URL.create("sqlite", database=str(data / "fairlead.db"))


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a backup with one job."""
    folder = tmp_path_factory.mktemp("good")
    data = folder / "data"
    (data / "jobs/j1/checkpoint").mkdir(parents=True)
    (data / "jobs/j1/checkpoint/file").write_text("weights")
    (data / "secrets.key").write_text("the key")
    store = Store(sqlite_url(data))
    token = store.acquire("test")
    assert token is not None
    store.append(token, 1, ["an event"], [Put("job", "j1", "{}")])
    store.close()
    options = BackupOptions(secrets=True)
    return create_backup(data, sqlite_url(data), folder / "good.tar", options).path


def read(path: Path) -> Members:
    with tarfile.open(path) as archive:
        return [(info, archive.extractfile(info).read()) for info in archive]  # type: ignore[union-attr]


def write(path: Path, members: Members, *, checksums: bool = True) -> Path:
    """Write an archive, by default with the right checksums of all its members."""
    digests = {info.name: hashlib.sha256(content).hexdigest() for info, content in members}
    digests.pop("checksums.json", None)
    with tarfile.open(path, "w") as archive:
        for info, content in members:
            body = content
            if checksums and info.name == "checksums.json":
                body = json.dumps({"sha256": digests}).encode()
            info.size = len(body) if info.isreg() else 0
            archive.addfile(info, io.BytesIO(body))
    return path


def member(name: str, content: bytes = b"x", kind: bytes = tarfile.REGTYPE) -> Members:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, "/etc/passwd"
    return [(info, content)]


HOSTILE: dict[str, tuple[Members, str]] = {
    "absolute path": (member("/tmp/evil"), "unexpected member"),
    "parent": (member("jobs/../../evil"), "unexpected member"),
    "other file": (member("fairlead.toml"), "unexpected member"),
    "dot": (member("jobs/./x"), "unexpected member"),
    "long name": (member("jobs/" + "x" * 300), "unexpected member"),
    "link": (member("jobs/j1/checkpoint", kind=tarfile.SYMTYPE), "not a regular file"),
    "hard link": (member("jobs/j1/x", kind=tarfile.LNKTYPE), "not a regular file"),
    "device": (member("jobs/j1/x", kind=tarfile.CHRTYPE), "not a regular file"),
    "directory": (member("jobs/j1/x", kind=tarfile.DIRTYPE), "not a regular file"),
    "file and directory": (member("jobs/j1/checkpoint"), "both file and directory"),
}


@pytest.mark.parametrize("attack", HOSTILE)
def test_a_hostile_archive_is_refused_and_changes_nothing(
    good: Path, tmp_path: Path, attack: str
) -> None:
    added, problem = HOSTILE[attack]
    members = read(good)
    bad = write(tmp_path / "bad.tar", [*members[:-1], *added, members[-1]])
    target = tmp_path / "to"
    with pytest.raises(InputError, match=problem) as caught:
        restore_backup(bad, target, sqlite_url(target))
    assert str(caught.value).startswith(str(bad))
    left = {path.name for path in target.iterdir()} if target.exists() else set()
    assert left <= {"fairlead.lock"}


def test_damage_at_any_place_is_noticed(good: Path, tmp_path: Path) -> None:
    content, bad, target = good.read_bytes(), tmp_path / "bad.tar", tmp_path / "to"
    with tarfile.open(good) as archive:
        data_at = [info.offset_data for info in archive if info.size]
        end = max(info.offset_data + info.size for info in archive)
    cuts = [content[:size] for size in (0, 100, 512, *range(2000, end, end // 7))]
    flips = [
        content[: at + 5] + bytes([content[at + 5] ^ 1]) + content[at + 6 :] for at in data_at
    ]
    for damaged in (*cuts, *flips):
        bad.write_bytes(damaged)
        with pytest.raises(InputError):
            restore_backup(bad, target, sqlite_url(target))
        assert not target.exists()
    members = read(good)
    for changed in (members[1:], members[:-1], [*members, *members[:1]], members[:1], []):
        write(bad, changed, checksums=False)
        with pytest.raises(InputError):
            restore_backup(bad, target, sqlite_url(target))
    assert not target.exists()


def test_a_backup_of_a_newer_version_is_refused(good: Path, tmp_path: Path) -> None:
    target = tmp_path / "to"
    for change, problem in (
        ({"schema": "9999"}, "schema 9999 of Fairlead"),
        ({"format": 2}, "format 2"),
    ):
        members = read(good)
        header = json.loads(members[0][1]) | change
        members[0] = members[0][0], json.dumps(header).encode()
        bad = write(tmp_path / "bad.tar", members)
        with pytest.raises(InputError, match=problem):
            restore_backup(bad, target, sqlite_url(target))
        assert not target.exists()


def test_the_data_of_a_server_is_never_overwritten(good: Path, tmp_path: Path) -> None:
    target = tmp_path / "to"
    url = sqlite_url(target)
    target.mkdir()
    (target / "fairlead.toml").write_text("port = 1")
    restore_backup(good, target, url)
    (target / "jobs/j1/checkpoint/file").write_text("newer weights")
    (target / "admin.token").write_text("old token")
    with pytest.raises(InputError, match=r"holds the data of a server .*--force"):
        restore_backup(good, target, url)
    with (target / "fairlead.lock").open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(InputError, match="in use by a running server"):
            restore_backup(good, target, url, force=True)
    lease = target / "leases/7"
    lease.mkdir(parents=True)
    alive = lease_dir.try_lock(lease)
    assert alive is not None
    with alive, pytest.raises(InputError, match="processes of jobs still run"):
        restore_backup(good, target, url, force=True)
    assert (target / "jobs/j1/checkpoint/file").read_text() == "newer weights"
    moved = restore_backup(good, target, url, force=True).moved_to
    assert moved is not None
    assert (moved / "jobs/j1/checkpoint/file").read_text() == "newer weights"
    assert (target / "jobs/j1/checkpoint/file").read_text() == "weights"
    assert {path.name for path in moved.iterdir()} == {
        *("admin.token", "fairlead.db", "jobs", "leases"),
    }
    assert {path.name for path in target.iterdir()} == {
        *("fairlead.db", "fairlead.lock", "fairlead.toml", "jobs", moved.name),
        *("secrets.key", "secrets.key.before-restore"),
    }
    assert (target / "fairlead.db").stat().st_mode & 0o777 == 0o600


def test_a_directory_with_other_files_is_refused_and_left_alone(
    good: Path, tmp_path: Path
) -> None:
    data = tmp_path / "home"
    data.mkdir()
    (data / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match=r"data: .* not a server's \(notes.txt\): expected"):
        restore_backup(good, data, sqlite_url(data))
    assert [path.name for path in data.iterdir()] == ["notes.txt"]
    assert restore_backup(good, data, sqlite_url(data), force=True).moved_to is None
    assert (data / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize("name", ["fairlead.toml", "secrets.key", "good.tar", "before-restore-1"])
def test_settings_and_the_backup_itself_may_be_in_the_directory(
    good: Path, tmp_path: Path, name: str
) -> None:
    archive = tmp_path / name if name == "good.tar" else good
    (tmp_path / name).write_bytes(good.read_bytes() if name == "good.tar" else b"")
    restore_backup(archive, tmp_path, sqlite_url(tmp_path))
    assert (tmp_path / "jobs/j1/checkpoint/file").read_text() == "weights"
