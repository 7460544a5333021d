"""Checkpoints on disk: written aside, committed by rename, refused once a later lease may write.

The directory of a job holds ``lock``, ``fence`` (the greatest lease that may write),
``latest.json`` (the checkpoint in force) and the files that it names, one for each rank. See
docs/design/live.md.
"""

import fcntl
import hashlib
import json
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from fairlead import failpoints

_HEADER = 64
"""bytes before the payload: its SHA-256 in hexadecimal"""
_CHECKPOINT_NAME = re.compile(r"(\d+)(?:-(\d+)\.\d+\.ckpt(?:\.tmp|\.part)?|\.\d+\.\d+\.leaves)")
"""lease and, of a checkpoint, steps in the names of files that are removed one day: checkpoints,
and those in which members say after which step they leave"""


class FencedError(Exception):
    """A later lease of the job may write by now, so this one must not."""


class Latest(NamedTuple):
    """The checkpoint in force."""

    lease: int
    steps: int
    files: tuple[str, ...]
    """by rank"""


def raise_fence(directory: str, lease: int) -> None:
    """Let only this lease or a later one write from now on; refuse if a later one may already."""
    os.makedirs(directory, exist_ok=True)
    with _locked(directory):
        require(directory, lease)
        _replace(os.path.join(directory, "fence"), str(lease).encode())


def fence(directory: str) -> int:
    """Return the greatest lease that may write, -1 if none was named yet."""
    try:
        with open(os.path.join(directory, "fence"), encoding="ascii") as file:
            return int(file.read())
    except FileNotFoundError:
        return -1


def latest(directory: str) -> Latest | None:
    """Return the checkpoint in force, None if there is none."""
    try:
        with open(os.path.join(directory, "latest.json"), encoding="utf-8") as file:
            found = json.load(file)
    except FileNotFoundError:
        return None
    return Latest(found["lease"], found["steps"], tuple(found["files"]))


def settled(directory: str) -> Latest | None:
    """Return the checkpoint in force once no loss of power can undo it.

    Whoever put it in force may have died just before that.
    """
    with suppress(OSError):  # it is not there, or there is no room
        _fsync_directory(directory)
    return latest(directory)


def read(directory: str, rank: int) -> bytes | None:
    """Return what a rank saved in the checkpoint in force; OSError if the file is damaged.

    A gang that was smaller then reads rank 0's.
    """
    found = latest(directory)
    if found is None:
        return None
    name = found.files[rank] if rank < len(found.files) else found.files[0]
    with open(os.path.join(directory, name), "rb") as file:
        digest, payload = file.read(_HEADER), file.read()
    if _digest(payload) != digest:
        raise OSError(f"checkpoint {name} is damaged: its checksum does not match")
    return payload


def write(directory: str, lease: int, steps: int, rank: int, payload: bytes) -> str:
    """Write one rank's file under a name of its own, flushed to disk; return the name.

    Raises FencedError if it was tidied away meanwhile, since a later lease may write.
    """
    name = _name(lease, steps, rank)
    path = os.path.join(directory, name)
    try:
        with open(path + ".tmp", "wb") as file:
            file.write(_digest(payload))
            file.write(payload)
            file.flush()
            os.fsync(file.fileno())
        os.replace(path + ".tmp", path)
    except OSError as error:
        # Never the file itself: it may be in force, of an earlier try whose commit seemed to fail.
        _remove(path + ".tmp")
        if isinstance(error, FileNotFoundError):
            require(directory, lease)
        raise
    return name


def commit(directory: str, lease: int, steps: int, ranks: int, *, wait_s: float = 60.0) -> None:
    """Put this lease's files for ``steps`` in force, once all ranks have written theirs.

    Raises FencedError if a later lease may write, TimeoutError if a rank's file does not come.
    """
    names = [_name(lease, steps, rank) for rank in range(ranks)]
    until = time.monotonic() + wait_s
    while not all(os.path.exists(os.path.join(directory, name)) for name in names):
        if time.monotonic() > until:
            raise TimeoutError(f"not all of {ranks} ranks wrote their part of step {steps}")
        time.sleep(0.02)
    with _locked(directory):
        require(directory, lease)
        failpoints.point("job.commit.locked")
        found = {"lease": lease, "steps": steps, "files": names}
        _replace(os.path.join(directory, "latest.json"), json.dumps(found).encode())
        failpoints.point("job.commit.replaced")
        _remove_old(directory, lease, names)


def install(directory: str, lease: int, found: Latest | None) -> None:
    """Put in force for a lease what was carried here from elsewhere, None to begin from nothing.

    Files that were carried here lie under their names with ``.part`` behind; those that this
    directory's readers do not want need not be here. Raises FencedError if a later lease may
    write, OSError if a file is damaged: then nothing is changed but the fence.
    """
    raise_fence(directory, lease)
    with _locked(directory):
        require(directory, lease)
        path = os.path.join(directory, "latest.json")
        if found is None:
            _remove(path)
            return
        names = [os.path.join(directory, name) for name in found.files]
        carried = [name for name in names if os.path.exists(name + ".part")]
        for name in carried:
            if not is_intact(name + ".part"):
                raise OSError(f"checkpoint {name} is damaged: its checksum does not match")
        for name in carried:
            os.replace(name + ".part", name)
        said = {"lease": found.lease, "steps": found.steps, "files": found.files}
        _replace(path, json.dumps(said).encode())
        _remove_old(directory, found.lease, list(found.files))


def empty(directory: str, lease: int) -> None:
    """Remove a copy of which the whole is elsewhere, unless a later lease may write here."""
    if not os.path.isdir(directory):
        return
    with _locked(directory):
        if fence(directory) <= lease:
            _remove(os.path.join(directory, "latest.json"))
            for name in os.listdir(directory):
                if _CHECKPOINT_NAME.fullmatch(name):
                    _remove(os.path.join(directory, name))


def is_intact(path: str) -> bool:
    """Tell whether a checkpoint's file is here and has the checksum that it names."""
    try:
        with open(path, "rb") as file:
            digest = file.read(_HEADER)
            return hashlib.file_digest(file, "sha256").hexdigest().encode() == digest
    except FileNotFoundError:
        return False


def wait_for_commit(directory: str, lease: int, steps: int, *, wait_s: float = 60.0) -> bool:
    """Wait until rank 0 has put this lease's checkpoint in force; tell whether it did."""
    until = time.monotonic() + wait_s
    while time.monotonic() < until:
        found = latest(directory)
        if found is not None and (found.lease, found.steps) >= (lease, steps):
            return found.lease == lease
        if fence(directory) > lease:
            return False
        time.sleep(0.02)
    return False


def require(directory: str, lease: int) -> None:
    """Raise FencedError if a later lease may write."""
    if fence(directory) > lease:
        raise FencedError(f"lease {fence(directory)} may write, {lease} no more")


def _name(lease: int, steps: int, rank: int) -> str:
    return f"{lease}-{steps}.{rank}.ckpt"


def _remove_old(directory: str, lease: int, keep: list[str]) -> None:
    """Remove what no later reader can want: other checkpoints of this lease and earlier ones.

    What members of an earlier one have said as they parted goes as well.
    """
    last = int(keep[0].split("-")[1].split(".")[0])
    for name in os.listdir(directory):
        found = _CHECKPOINT_NAME.fullmatch(name)  # what else is there is the user's
        if found is None or name in keep:
            continue
        number, steps = int(found[1]), found[2]
        is_next = number == lease and (steps is None or int(steps) > last)
        if number <= lease and not is_next:
            _remove(os.path.join(directory, name))


@contextmanager
def _locked(directory: str) -> Iterator[None]:
    with open(os.path.join(directory, "lock"), "a", encoding="ascii") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _replace(path: str, body: bytes) -> None:
    """Replace a small file so that after a crash it is the old or the new one, never a part."""
    aside = f"{path}.{os.getpid()}.tmp"
    try:
        with open(aside, "wb") as file:
            file.write(body)
            file.flush()
            os.fsync(file.fileno())
        failpoints.point("job.commit.aside")
        os.replace(aside, path)
    except OSError:
        _remove(aside)
        raise
    _fsync_directory(os.path.dirname(path))


def _fsync_directory(directory: str) -> None:
    """Let a loss of power not undo what files in a directory are called."""
    holder = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(holder)
    finally:
        os.close(holder)


def _remove(path: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(path)


def _digest(payload: bytes) -> bytes:
    return hashlib.sha256(payload).hexdigest().encode()
