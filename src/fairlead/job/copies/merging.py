"""Merges the checkpoints of a job's copies into the job's own, after the last copy has left.

Every copy saves to a directory of its own, named by its lease. The merge links the files of all
copies into the job's directory and commits them together, with the steps of each as its weight;
the next processes of the job compute the average. They continue after as many items as the copies
have made steps: copies of which one was slower than planned, or died, have left at different
items. If all were past more items, the merged checkpoint keeps the file of the one before it for
its position. A merge costs as much for a large model as for a small one, needs no framework, and a
crash at any point leaves either the state before it or the merged one.
"""

import os
from collections.abc import Collection, Sequence
from contextlib import suppress

from fairlead import failpoints, untrusted_file
from fairlead.job import checkpoint
from fairlead.job.committed import CommittedCheckpoint
from fairlead.untrusted_file import UnusableFileError

_LOCK_TIMEOUT_S = 2.0
"""seconds to wait for a lock, which only an orphan of the job may still hold"""


def merge_copies(directory: str, copies: str, open_leases: Collection[int]) -> int:
    """Merge the ended copies below ``copies`` into the job's checkpoint ``directory``.

    Returns the steps in that checkpoint and in those of ended copies. Merges nothing while a copy
    is open. Can be repeated: copies up to the lease of the job's checkpoint are in it already.
    """
    leases = _copy_leases(copies)
    # A power failure must not undo a merge whose copies are removed below.
    base = checkpoint.durable_latest(directory) or CommittedCheckpoint(-1, 0, ())
    # Copies below the fence are of an earlier round, and began after it was merged.
    first = max(base.lease + 1, checkpoint.fence(directory))
    new = [lease for lease in leases if lease >= first and lease not in open_leases]
    parts = [part for lease in new if (part := _close(os.path.join(copies, str(lease)), lease))]
    steps = base.steps + sum(part.steps for part in parts)
    if any(lease in open_leases for lease in leases):
        return steps
    if parts:
        failpoints.point("server.merge.closed")
        parts.sort(key=lambda part: (-part.steps, part.lease))
        merged = _averaged(parts, max(new), steps)
        paths = [os.path.join(copies, str(part.lease), part.files[0]) for part in parts]
        if merged.position is None and base.files and base.position is not None:
            index, position = base.position
            merged = merged._replace(
                files=(*merged.files, base.files[index]),
                weights=(*merged.weights, 0),
                positions=(*merged.positions, position),
            )
            paths.append(os.path.join(directory, base.files[index]))
        _make_directory(directory, os.path.dirname(paths[0]))
        checkpoint.commit_average(directory, merged, paths, wait_s=_LOCK_TIMEOUT_S)
        failpoints.point("server.merge.committed")
    for lease in leases:
        path = os.path.join(copies, str(lease))
        for tree in {path, checkpoint.control_directory(path)}:
            with suppress(FileNotFoundError):
                untrusted_file.remove_tree(tree)
                failpoints.point("server.merge.removed")
    return steps


def fence_earlier_leases(directory: str, copies: str, open_leases: Collection[int]) -> None:
    """Refuse checkpoints of the job's leases before its copies, of which some are open.

    Their processes may have outlived the loss of their node; steps that they saved beside the
    copies would count although the copies lack them.
    """
    first = min((*_copy_leases(copies), *open_leases))
    if os.path.isdir(directory) and checkpoint.fence(directory) < first:
        checkpoint.raise_fence(directory, first, wait_s=_LOCK_TIMEOUT_S)


def _averaged(parts: Sequence[CommittedCheckpoint], lease: int, steps: int) -> CommittedCheckpoint:
    """Return the checkpoint of the average of copies."""
    positions = [part.positions for part in parts]
    return CommittedCheckpoint(
        lease,
        steps,
        tuple(part.files[0] for part in parts),
        tuple(part.steps for part in parts),
        # Copies under an earlier version of the job library have not told theirs.
        tuple(one[0] for one in positions) if all(positions) else (),
    )


def _copy_leases(copies: str) -> list[int]:
    try:
        names = os.listdir(copies)
        return sorted(int(name) for name in names if name.isascii() and name.isdigit())
    except FileNotFoundError:
        return []


def _close(path: str, lease: int) -> CommittedCheckpoint | None:
    """Refuse later writers of a copy; return its checkpoint, None if it has made no steps."""
    try:
        checkpoint.raise_fence(path, lease + 1, wait_s=_LOCK_TIMEOUT_S)
        committed = checkpoint.durable_latest(path)
        if committed is None or not committed.steps or committed.lease != lease:
            return None
    except UnusableFileError:  # the job has damaged it: its steps are repeated
        return None
    return committed if os.path.isfile(os.path.join(path, committed.files[0])) else None


def _make_directory(directory: str, owned_like: str) -> None:
    """Make a job's checkpoint directory, unless it exists, for the owner of a copy's directory."""
    owner = os.stat(owned_like)
    with suppress(FileExistsError):
        os.mkdir(directory, 0o700)
        if owner.st_uid != os.geteuid():  # then the lock and the fence stay the server's
            os.mkdir(checkpoint.control_directory(directory, separate=True), 0o755)
            os.chown(directory, owner.st_uid, owner.st_gid)
