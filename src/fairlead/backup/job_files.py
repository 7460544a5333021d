"""Files of jobs, read by descriptors: tenants own these directories and may change them anytime.

No link is followed, and only regular files of the directory's owner are read. Of a checkpoint the
committed generation is copied.
"""

import json
import os
import pwd
import stat
from collections.abc import Callable
from functools import cache

from fairlead.backup.writer import ArchiveWriter
from fairlead.committed_files import open_committed, open_directory, open_owned
from fairlead.job import checkpoint
from fairlead.untrusted_file import UnusableFileError

_MAX_COPIES = 2
"""copies made of a file that changes"""
_MAX_DEPTH, _MAX_FILES = 32, 100_000
"""limits of one job's directory tree"""
_RESTORED_LEASE = 0
"""lease that a restored checkpoint names: it comes before every lease of the restored server"""

Warn = Callable[[str, str], None]
"""(file, problem): reports a file that is left out or may be damaged"""


class JobFiles:
    """Copies directories of jobs to an archive."""

    def __init__(self, archive: ArchiveWriter, warn: Warn) -> None:
        self._archive, self._warn = archive, warn
        self._left = 0
        """files that the tree at hand may still have"""

    def add_job(self, name: str, jobs: int, *, logs: bool) -> None:
        """Add the checkpoint of a job and, if wanted, its logs; ``jobs`` is its parent."""
        try:
            with open_directory(name, jobs) as job:
                present = os.listdir(job)
                if "checkpoint" in present:
                    with open_directory("checkpoint", job) as directory:
                        self._add_checkpoint(f"jobs/{name}/checkpoint", directory)
                if logs and "logs" in present:
                    with open_directory("logs", job) as directory:
                        self.add_tree(f"jobs/{name}/logs", directory, appended=True)
        except FileNotFoundError:
            return  # the job was removed meanwhile
        except (NotADirectoryError, PermissionError) as error:
            self._warn(f"jobs/{name}", f"left out ({error.strerror})")

    def add_tree(
        self,
        path: str,
        directory: int,
        wanted: Callable[[str], bool] = lambda _: True,
        *,
        appended: bool = False,
    ) -> None:
        """Add all files below a directory; ``wanted`` selects names in the directory itself.

        ``appended``: the files only grow, so that the beginning of one is a good copy.
        """
        self._left = _MAX_FILES
        names = sorted(filter(wanted, os.listdir(directory)))
        self._add_entries(path, directory, names, appended=appended)

    def _add_entries(
        self, path: str, directory: int, names: list[str], *, appended: bool, depth: int = 0
    ) -> None:
        for name in names:
            member = f"{path}/{name}"
            try:
                mode = os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode
                self._left -= 1
                if self._left < 0 or (stat.S_ISDIR(mode) and depth == _MAX_DEPTH):
                    self._warn(member, "left out: too many files, or nested too deeply")
                    return
                if stat.S_ISDIR(mode):
                    with open_directory(name, directory) as inner:
                        inside = sorted(os.listdir(inner))
                        self._add_entries(
                            member, inner, inside, appended=appended, depth=depth + 1
                        )
                else:
                    self._add_changing(member, name, directory, appended=appended)
            except FileNotFoundError:
                continue  # removed meanwhile
            except (UnusableFileError, NotADirectoryError, PermissionError) as error:
                self._warn(member, f"left out ({error.strerror or error})")

    def _add_changing(self, member: str, name: str, directory: int, *, appended: bool) -> None:
        """Add a file that may be written to at this moment."""
        for _ in range(_MAX_COPIES):
            with open_owned(name, directory) as file:
                copied = self._archive.add_file(member, file, owner=_owner(directory))
            if copied == "same" or (copied == "changed" and appended):
                return
        self._warn(member, "it changes all the time: its copy may mix several states")

    def _add_checkpoint(self, path: str, directory: int) -> None:
        self.add_tree(path, directory, lambda name: not checkpoint.is_managed(name))
        try:
            self._add_committed(path, directory)
        except UnusableFileError as error:
            self._warn(path, f"left out ({error})")

    def _add_committed(self, path: str, directory: int) -> None:
        """Add the committed checkpoint, if there is one."""
        with open_committed(directory) as opened:
            if opened is None:
                return
            owner = _owner(directory)
            for name, file in opened.files.items():
                if self._archive.add_file(f"{path}/{name}", file, owner=owner) != "same":
                    raise UnusableFileError(f"{name}: it changes, unlike all checkpoints")
        # Numbers of leases after the copy of the database mean nothing to the restored server.
        latest = opened.committed._replace(lease=_RESTORED_LEASE)
        content = json.dumps(latest._asdict()).encode()
        self._archive.add_bytes(f"{path}/latest.json", content, owner=owner)


def _owner(directory: int) -> str:
    """Return the user whose directory it is; empty for the user who makes the backup."""
    uid = os.fstat(directory).st_uid
    return "" if uid == os.geteuid() else _user_name(uid)


@cache
def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return ""
