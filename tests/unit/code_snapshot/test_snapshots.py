"""Code snapshots: packing, the checks of their format, unpacking."""

import hashlib
import io
import os
import stat
import subprocess
from pathlib import Path

import pytest

from fairlead.code_snapshot import location
from fairlead.code_snapshot.archive import Entry, header, verify
from fairlead.code_snapshot.packing import PackedCode, pack
from fairlead.code_snapshot.unpacking import unpack
from fairlead.model.errors import InputError
from fairlead.untrusted_file import UnusableFileError

MIB = 1 << 20


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def packed(directory: Path, root: Path, max_bytes: int = MIB) -> tuple[PackedCode, Path]:
    with io.BytesIO() as file:
        code = pack(directory, file, max_bytes)
        path = root / f"{code.digest}{location.SUFFIX}"
        path.write_bytes(file.getvalue())
    return code, path


def git(directory: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    command = ["git", "-C", str(directory), *identity, *arguments]
    subprocess.run(command, check=True, capture_output=True)


def names_in(directory: Path) -> set[str]:
    files = (path for path in directory.rglob("*") if path.is_symlink() or path.is_file())
    return {path.relative_to(directory).as_posix() for path in files}


def test_a_git_checkout_is_copied_with_untracked_and_without_ignored_files(
    tmp_path: Path,
) -> None:
    files = {"train.py": "1", "lib/a.py": "2", "data/x.bin": "3", ".gitignore": "data/\n"}
    home = write(tmp_path / "home", files)
    git(home, "init", "--quiet")
    git(home, "add", ".")
    git(home, "commit", "--quiet", "--message", "first")
    clean, _ = packed(home, tmp_path)
    write(home, {"new.py": "4", "train.py": "5"})
    (home / "lib/a.py").chmod(0o755)
    (home / "link").symlink_to("/datasets")
    code, path = packed(home, tmp_path)
    assert (clean.is_dirty, code.is_dirty) == (False, True)
    assert code.commit == clean.commit
    assert len(code.commit) == 40
    unpack(path, tmp_path / "job" / "code")
    made = tmp_path / "job" / "code"
    assert names_in(made) == {"train.py", "lib/a.py", ".gitignore", "new.py", "link"}
    assert (made / "train.py").read_text() == "5"
    assert os.readlink(made / "link") == "/datasets"
    assert os.access(made / "lib/a.py", os.X_OK)
    assert not os.access(made / "train.py", os.X_OK)
    assert stat.S_IMODE(made.stat().st_mode) == 0o700
    below, _ = packed(home / "lib", tmp_path)
    assert below.commit == code.commit
    assert below.size < code.size


def test_a_plain_directory_is_copied_whole_and_equal_ones_have_equal_ids(tmp_path: Path) -> None:
    files = {"a.py": "1", "b/c.txt": "2", "__pycache__/a.pyc": "3"}
    codes = [packed(write(tmp_path / name, files), tmp_path) for name in ("one", "two")]
    assert codes[0] == codes[1]
    code, path = codes[0]
    assert (code.commit, code.is_dirty, code.size) == ("", False, path.stat().st_size)
    unpack(path, tmp_path / "code")
    assert names_in(tmp_path / "code") == {"a.py", "b/c.txt"}


def test_a_directory_above_the_limit_is_refused_with_its_largest_files(tmp_path: Path) -> None:
    home = write(tmp_path / "home", {"a.py": "1", "data/big.bin": "x" * 2 * MIB})
    with pytest.raises(InputError) as caught:
        packed(home, tmp_path)
    assert "more than the server's limit of 1.0 MiB; largest: data/big.bin (2.0 MiB)" in str(
        caught.value
    )
    assert caught.value.field == "snapshot"
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="no files in"):
        packed(tmp_path / "empty", tmp_path)


def test_the_first_unpacked_code_stays_and_is_removed_with_its_job(tmp_path: Path) -> None:
    _, path = packed(write(tmp_path / "home", {"a.py": "1"}), tmp_path)
    code = location.code_dir(tmp_path / "job")
    for _ in range(2):
        unpack(path, code)
        (code / "results.txt").write_text("kept")
    assert os.listdir(tmp_path / "job") == ["code"]
    assert (code / "results.txt").read_text() == "kept"
    location.remove_code(tmp_path / "job")
    location.remove_code(tmp_path / "job")
    assert os.listdir(tmp_path / "job") == []


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_the_code_of_a_tenant_belongs_to_its_user_alone(tmp_path: Path) -> None:
    home = write(tmp_path / "home", {"a.py": "1", "b/c.py": "2"})
    (home / "link").symlink_to("a.py")
    _, path = packed(home, tmp_path)
    unpack(path, tmp_path / "code", (12345, 12346))
    made = tmp_path / "code"
    for each in (made, *made.rglob("*")):
        assert (each.lstat().st_uid, each.lstat().st_gid) == (12345, 12346)
    assert stat.S_IMODE(made.stat().st_mode) == 0o700


def as_file(root: Path, content: bytes) -> Path:
    path = root / f"{hashlib.sha256(content).hexdigest()}{location.SUFFIX}"
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    "entries",
    [
        [Entry("../a", "f", 1)],
        [Entry("/etc/a", "f", 1)],
        [Entry("a/../b", "f", 1)],
        [Entry("", "f", 1)],
        [Entry("a\0b", "f", 1)],
        [Entry("a" * 2000, "f", 1)],
        [Entry("a/" * 70 + "a", "f", 1)],
        [Entry("a", "f", 1), Entry("a", "f", 1)],
        [Entry("a", "l", target="/etc"), Entry("a/passwd", "f", 1)],
        [Entry("a", "f", -1)],
        [Entry("a", "f", 2)],
        [Entry("a", "d", 1)],
        [Entry("a", "l", target="")],
    ],
    ids=repr,
)
def test_a_hostile_snapshot_is_refused_and_leaves_nothing(
    entries: list[Entry], tmp_path: Path
) -> None:
    path = as_file(tmp_path, header(entries) + b"x")
    with path.open("rb") as file, pytest.raises(UnusableFileError, match="not a code snapshot"):
        verify(file, path.stem)
    with pytest.raises(UnusableFileError):
        unpack(path, tmp_path / "job" / "code")
    assert os.listdir(tmp_path / "job") == []


@pytest.mark.parametrize(
    "content", [b"", b"fairlead-code 1\n", b"fairlead-code 1\n{}\n", b"PK\3\4", b"[" * 100_000]
)
def test_another_file_is_no_snapshot(content: bytes, tmp_path: Path) -> None:
    path = as_file(tmp_path, content)
    with pytest.raises(UnusableFileError):
        unpack(path, tmp_path / "code")


def test_a_damaged_snapshot_is_not_unpacked(tmp_path: Path) -> None:
    _, path = packed(write(tmp_path / "home", {"a.py": "print(1)"}), tmp_path)
    path.write_bytes(path.read_bytes().replace(b"print(1)", b"print(2)"))
    with pytest.raises(UnusableFileError, match="SHA-256"):
        unpack(path, tmp_path / "code")
    path.unlink()
    with pytest.raises(UnusableFileError, match="is missing: submit the job again"):
        unpack(path, tmp_path / "code")
