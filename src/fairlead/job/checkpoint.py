"""Checkpoints on disk: committed by rename, refused once a later lease of the job may write.

The directory of a job holds ``lock``, ``fence`` (the greatest lease that may write),
``latest.json`` (the committed checkpoint) and the files that it names, one per rank. Where jobs
run as users of their own, ``lock`` and ``fence`` are in a directory beside it that jobs cannot
write. See docs/design/live.md.
"""

import fcntl
import json
import os
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from fairlead import block_file, failpoints, untrusted_file
from fairlead.atomic_file import fsync_directory, replace_file
from fairlead.block_file import Payload
from fairlead.job.committed import CommittedCheckpoint, parse_committed
from fairlead.job.saving.memory_file import MemoryFile, remove_file, write_file
from fairlead.untrusted_file import UnusableFileError

_CHECKPOINT_NAME = re.compile(
    r"(\d+)(?:-(\d+)\.\d+\.ckpt(?:(?:\.\d+)?\.tmp|\.part)?|\.\d+\.\d+\.leaves)"
)
"""lease and, for a checkpoint, steps in the names of files that become obsolete: checkpoints, and
the files in which members announce their last step"""
_MAX_LATEST_BYTES = 16 << 20
_POLL_S = 0.02
_LOCK_POLL_S, _MAX_LOCK_POLL_S = 0.001, 0.05
_LOCK_TIMEOUT_S = 60.0


class FencedError(Exception):
    """A later lease of the job may write, so this one must not."""

    def __init__(self, fence: int, lease: int) -> None:
        super().__init__(fence, lease)
        self.fence, self.lease = fence, lease

    def __str__(self) -> str:
        return f"lease {self.fence} may write, {self.lease} may not"


class LockHeldError(TimeoutError):
    """Another process has held the lock of a checkpoint directory for too long."""


def control_directory(directory: str, *, separate: bool = False) -> str:
    """Return the directory of ``lock`` and ``fence``: the separate one if it exists."""
    beside = directory.rstrip("/") + ".control"
    return beside if separate or os.path.isdir(beside) else directory


def raise_fence(directory: str, lease: int, *, wait_s: float = _LOCK_TIMEOUT_S) -> None:
    """Let only this lease or a later one write from now on.

    Raises FencedError if a later lease may write already, LockHeldError if a process holds the
    lock for longer than ``wait_s``, UnusableFileError if the job has damaged the directory.
    """
    try:
        os.makedirs(directory, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise UnusableFileError(f"{directory}: not a directory") from error
    with _locked(directory, wait_s):
        require(directory, lease)
        _replace(control_directory(directory), "fence", str(lease).encode())


def fence(directory: str) -> int:
    """Return the greatest lease that may write, -1 before the first.

    Raises UnusableFileError if the job has damaged the file.
    """
    path = os.path.join(control_directory(directory), "fence")
    try:
        text = untrusted_file.read(path, 32)
    except FileNotFoundError:
        return -1
    if not text.strip().isdigit():
        raise UnusableFileError(f"{path}: not the number of a lease")
    return int(text)


def latest(directory: str) -> CommittedCheckpoint | None:
    """Return the committed checkpoint, None if there is none.

    Raises UnusableFileError if the job has damaged ``latest.json``.
    """
    path = os.path.join(directory, "latest.json")
    try:
        content = json.loads(untrusted_file.read(path, _MAX_LATEST_BYTES))
    except FileNotFoundError:
        return None
    except (ValueError, RecursionError):
        raise UnusableFileError(f"{path}: not JSON") from None
    if not isinstance(content, dict):
        raise UnusableFileError(f"{path}: not a JSON object")
    return parse_committed(path, content)


def durable_latest(directory: str) -> CommittedCheckpoint | None:
    """Return the committed checkpoint once no power failure can undo its commit.

    The process that committed it may have died before it synced the directory.
    """
    with suppress(OSError):  # the directory is missing, or the disk is full
        fsync_directory(directory)
    return latest(directory)


def saved_steps(directory: str) -> float | None:
    """Return the steps of the committed checkpoint; None without one, or if it is damaged."""
    try:
        committed = durable_latest(directory)
    except UnusableFileError:
        return None
    return None if committed is None else float(committed.steps)


def is_managed(name: str) -> bool:
    """Return whether a file of a checkpoint directory is Fairlead's; all others are the user's."""
    own = ("lock", "fence", "latest.json")
    return name.startswith(tuple(f"{one}." for one in own)) or (
        name in own or _CHECKPOINT_NAME.fullmatch(name) is not None
    )


def read(directory: str, rank: int) -> Payload | None:
    """Return a rank's payload of the committed checkpoint; OSError if its file is damaged.

    Ranks beyond the gang that wrote the checkpoint read rank 0's payload.
    """
    committed = latest(directory)
    if committed is None:
        return None
    name = committed.files[rank] if rank < len(committed.files) else committed.files[0]
    return _read_file(directory, name)


def read_all(directory: str, committed: CommittedCheckpoint) -> Iterator[Payload]:
    """Yield the payload of each rank that wrote a checkpoint; OSError if a file is damaged."""
    for name in committed.files:
        yield _read_file(directory, name)


def _read_file(directory: str, name: str) -> Payload:
    with open(untrusted_file.open_regular(os.path.join(directory, name)), "rb") as file:
        payload = block_file.read(file)
    if payload is None:
        raise _damaged(name)
    return payload


def write(
    directory: str,
    lease: int,
    steps: int,
    rank: int,
    *payload: Payload,
    spare: MemoryFile | None = None,
) -> str:
    """Write one rank's file of a checkpoint, synced to disk; return its name.

    A spare file of the directory saves time. Raises FencedError if a later lease removed the file
    meanwhile.
    """
    name = _name(lease, steps, rank)
    try:
        write_file(os.path.join(directory, name), payload, spare)
    except FileNotFoundError:
        require(directory, lease)
        raise
    return name


def commit(
    directory: str,
    lease: int,
    steps: int,
    ranks: int,
    *,
    positions: tuple[int, ...] = (),
    wait_s: float = 60.0,
) -> None:
    """Commit this lease's checkpoint of ``steps`` once all ranks have written their files.

    A copy commits its position, too. Raises FencedError if a later lease may write, TimeoutError
    if a rank's file is missing.
    """
    names = [_name(lease, steps, rank) for rank in range(ranks)]
    until = time.monotonic() + wait_s
    while not all(os.path.exists(os.path.join(directory, name)) for name in names):
        if time.monotonic() > until:
            raise TimeoutError(f"step {steps}: not all of {ranks} ranks wrote their files")
        time.sleep(_POLL_S)
    with _locked(directory):
        require(directory, lease)
        failpoints.point("job.commit.locked")
        latest = CommittedCheckpoint(lease, steps, tuple(names), positions=positions)
        _replace_latest(directory, latest)
        failpoints.point("job.commit.replaced")
        _remove_obsolete(directory, lease, names)


def commit_average(
    directory: str, committed: CommittedCheckpoint, paths: Sequence[str], *, wait_s: float
) -> None:
    """Commit the average of several checkpoints, whose files are linked from ``paths``.

    Raises FencedError and LockHeldError as ``raise_fence`` does.
    """
    raise_fence(directory, committed.lease, wait_s=wait_s)
    with _locked(directory, wait_s):
        require(directory, committed.lease)
        for path, name in zip(paths, committed.files, strict=True):
            with suppress(FileExistsError):  # linked before a crash
                os.link(path, os.path.join(directory, name), follow_symlinks=False)
        _replace_latest(directory, committed)
        _remove_obsolete(directory, committed.lease, list(committed.files))


def install(
    directory: str,
    lease: int,
    committed: CommittedCheckpoint | None,
    *,
    wait_s: float = _LOCK_TIMEOUT_S,
) -> None:
    """Commit a transferred checkpoint for a lease; None starts the lease from scratch.

    Transferred files have the suffix ``.part``; files that no rank here reads need not be present.
    Raises FencedError if a later lease may write, LockHeldError if a process holds the lock for
    longer than ``wait_s``, OSError if a file is damaged: then only the fence has changed.
    """
    raise_fence(directory, lease, wait_s=wait_s)
    with _locked(directory, wait_s):
        require(directory, lease)
        if committed is None:
            remove_file(os.path.join(directory, "latest.json"))
            return
        paths = [os.path.join(directory, name) for name in committed.files]
        transferred = [path for path in paths if os.path.exists(path + ".part")]
        for path in transferred:
            if not is_intact(path + ".part"):
                raise _damaged(path)
        for path in transferred:
            os.replace(path + ".part", path)
        _replace_latest(directory, committed)
        _remove_obsolete(directory, committed.lease, list(committed.files))


def remove_copy(directory: str, lease: int, *, wait_s: float = _LOCK_TIMEOUT_S) -> None:
    """Remove a copy of a checkpoint that is complete elsewhere, unless a later lease may write."""
    if not os.path.isdir(directory):
        return
    with _locked(directory, wait_s):
        if fence(directory) <= lease:
            remove_file(os.path.join(directory, "latest.json"))
            for name in os.listdir(directory):
                if _CHECKPOINT_NAME.fullmatch(name):
                    remove_file(os.path.join(directory, name))


def is_intact(path: str) -> bool:
    """Return whether a checkpoint's file exists and matches the checksum in its header."""
    try:
        with open(untrusted_file.open_regular(path), "rb") as file:
            return block_file.is_intact(file)
    except (FileNotFoundError, UnusableFileError):
        return False


def wait_for_commit(directory: str, lease: int, steps: int, *, wait_s: float = 60.0) -> bool:
    """Wait until rank 0 has committed this lease's checkpoint; return whether it did."""
    until = time.monotonic() + wait_s
    while time.monotonic() < until:
        committed = latest(directory)
        if committed is not None and (committed.lease, committed.steps) >= (lease, steps):
            return committed.lease == lease
        if fence(directory) > lease:
            return False
        time.sleep(_POLL_S)
    return False


def require(directory: str, lease: int) -> None:
    """Raise FencedError if a later lease may write."""
    greatest = fence(directory)
    if greatest > lease:
        raise FencedError(greatest, lease)


def _name(lease: int, steps: int, rank: int) -> str:
    return f"{lease}-{steps}.{rank}.ckpt"


def _remove_obsolete(directory: str, lease: int, keep: list[str]) -> None:
    """Remove the other checkpoints of this lease and earlier ones, except later steps.

    Last steps that members of earlier leases announced go as well.
    """
    last = int(keep[0].split("-")[1].split(".")[0])
    for name in os.listdir(directory):
        match = _CHECKPOINT_NAME.fullmatch(name)  # all other files are the user's
        if match is None or name in keep:
            continue
        number, steps = int(match[1]), match[2]
        is_next = number == lease and (steps is None or int(steps) > last)
        if number <= lease and not is_next:
            remove_file(os.path.join(directory, name))


@contextmanager
def _locked(directory: str, wait_s: float = _LOCK_TIMEOUT_S) -> Iterator[None]:
    path = os.path.join(control_directory(directory), "lock")
    with open(_open_lock(path), "rb") as file:
        until, poll_s = time.monotonic() + wait_s, _LOCK_POLL_S
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= until:
                    raise LockHeldError(f"{path}: another process holds the lock") from None
            time.sleep(poll_s)
            poll_s = min(2 * poll_s, _MAX_LOCK_POLL_S)
        try:
            yield
        finally:
            # A loader's worker that was forked meanwhile has the file open, too.
            fcntl.flock(file, fcntl.LOCK_UN)


def _open_lock(path: str) -> int:
    """Return a descriptor of a lock's file; a job may only read the one that is not its own."""
    try:
        return untrusted_file.open_regular(path, os.O_RDWR | os.O_CREAT)
    except UnusableFileError:
        if os.access(path, os.W_OK):
            raise
        return untrusted_file.open_regular(path)


def _replace_latest(directory: str, committed: CommittedCheckpoint) -> None:
    content = {key: value for key, value in committed._asdict().items() if value != ()}
    _replace(directory, "latest.json", json.dumps(content).encode())


def _replace(directory: str, name: str, content: bytes) -> None:
    """Replace ``fence`` or ``latest.json``, durably."""
    replace_file(
        os.path.join(directory, name),
        content,
        for_directory_owner=True,
        before_rename=lambda: failpoints.point("job.commit.aside"),
    )


def _damaged(name: str) -> OSError:
    return OSError(f"checkpoint {name} is damaged: its checksum does not match")
