"""Directories of a lease that are given to the Unix user of its tenant.

The server does this as root, in directories that the tenant may own already. So it works on open
descriptors, follows no link, and gives away only files that cannot be another user's.
"""

import os
import pwd
import stat
from contextlib import suppress
from pathlib import Path

from fairlead.engines.slurm.leases import SlurmLeasePart

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY


def hand_over(part: SlurmLeasePart, user: pwd.struct_passwd) -> None:
    """Give the directories of a part and of its job to the tenant's user."""
    part.directory.parent.chmod(0o711)
    _give(part.directory, user)
    for name in (part.order.checkpoint_dir, part.order.log_dir):
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):
            path.mkdir(mode=0o700)
        _give(path, user)


def _give(path: Path, user: pwd.struct_passwd) -> None:
    directory = os.open(path, _DIRECTORY)
    try:
        owner = os.fstat(directory).st_uid
        # Files in the tenant's directory are the tenant's; the server once left some of these.
        is_new = owner != user.pw_uid
        for name in os.listdir(directory) if is_new else ("lock", "fence"):
            _give_file(name, directory, owner if is_new else os.geteuid(), user)
        os.fchmod(directory, 0o700)
        os.fchown(directory, user.pw_uid, user.pw_gid)
    finally:
        os.close(directory)


def _give_file(name: str, directory: int, owner: int, user: pwd.struct_passwd) -> None:
    """Give a regular file with one name, of this owner, to a user."""
    try:
        descriptor = os.open(name, _FILE, dir_fd=directory)
    except OSError:  # missing, or a link
        return
    try:
        status = os.fstat(descriptor)
        if stat.S_ISREG(status.st_mode) and status.st_uid == owner and status.st_nlink == 1:
            os.fchown(descriptor, user.pw_uid, user.pw_gid)
    finally:
        os.close(descriptor)
