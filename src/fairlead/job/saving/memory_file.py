"""Files of a file system in memory: mapped, and without a name until they are complete.

To write to such a file takes a lock for each call and the kernel's time for each page. Threads
fill mapped memory at once, and the pages of a spare file are there before it is needed. The kernel
removes a file without a name when its process dies.
"""

import mmap
import os
import stat
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import suppress

from fairlead import block_file, failpoints
from fairlead.atomic_file import replacement
from fairlead.block_file import Payload

_TMPFS = 0x01021994
"""type of a file system in memory, see statfs(2)"""
_STATFS_BYTES = 256
PIECE = 16 << 20
"""bytes that are faulted in at once"""
_LARGE = 64 << 20
"""bytes from which the removal of a file takes a while"""


class MemoryFile:
    """A mapped file without a name in a directory of a file system in memory."""

    def __init__(self, directory: str, nbytes: int) -> None:
        """Create the file; OSError if the file system cannot."""
        self.nbytes = nbytes
        self._directory = directory
        self._descriptor = os.open(directory, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o666)
        try:
            os.ftruncate(self._descriptor, nbytes)
            self._memory = mmap.mmap(self._descriptor, nbytes)
        except BaseException:
            os.close(self._descriptor)
            raise
        self._is_open = True
        _open_files.add(self)

    def populate(self) -> Iterator[None]:
        """Take the memory piece by piece; OSError if there is none left."""
        failpoints.point("job.spare.made")
        for begin in range(0, self.nbytes, PIECE):
            block_file.populate(self._memory, begin, min(begin + PIECE, self.nbytes))
            yield
        failpoints.point("job.spare.taken")

    def write(self, chunks: Sequence[Payload]) -> None:
        """Write a payload, which must fit; OSError if there is no memory left."""
        size = block_file.size_of(chunks)
        if size > self.nbytes:
            raise ValueError(f"{size} bytes: expected {self.nbytes} at most")
        block_file.write_to_memory(self._memory, chunks)
        os.ftruncate(self._descriptor, size)
        failpoints.point("job.spare.written")

    def name(self, path: str) -> None:
        """Give the file its name, atomically; a file of that name is replaced."""
        try:
            self._link(path)
        except FileExistsError:
            temporary = f"{path}.{os.getpid()}.tmp"
            with suppress(FileNotFoundError):
                os.unlink(temporary)
            self._link(temporary)
            os.replace(temporary, path)
        failpoints.point("job.spare.named")

    def _link(self, path: str) -> None:
        # With a directory os.link follows the link in /proc, which stands for the file itself.
        directory = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.link(f"/proc/self/fd/{self._descriptor}", path, src_dir_fd=directory)
        finally:
            os.close(directory)

    def close(self) -> None:
        """Unmap the file; without a name it is gone."""
        if self._is_open:
            self._is_open = False
            os.close(self._descriptor)
            with suppress(BufferError):  # a thread, or the trace of an error, refers to it
                self._memory.close()


_open_files: weakref.WeakSet[MemoryFile] = weakref.WeakSet()


def _close_in_child() -> None:
    """Close the files of the parent: a loader's worker would keep their memory until its end."""
    for file in list(_open_files):
        file.close()


os.register_at_fork(after_in_child=_close_in_child)


def is_in_memory(directory: str) -> bool:
    """Return whether a directory's file system is in memory, and can be used by mapping."""
    import ctypes  # noqa: PLC0415  # slow to import; only large payloads need it

    content = ctypes.create_string_buffer(_STATFS_BYTES)
    if ctypes.CDLL(None).statfs(os.fsencode(directory), content) != 0:
        return False
    file_system = ctypes.c_long.from_buffer(content).value
    return file_system == _TMPFS and block_file.can_populate()


def remove_file(path: str) -> None:
    """Remove a file, if it exists; a thread gives back what a large one takes.

    That takes a tenth of a second for each gigabyte, for which nobody should wait.
    """
    descriptor = None
    with suppress(OSError):
        about = os.lstat(path)
        if stat.S_ISREG(about.st_mode) and about.st_size >= _LARGE:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        with suppress(FileNotFoundError):
            os.unlink(path)
    finally:
        if descriptor is not None:  # the last reference to the file
            closer = threading.Thread(target=os.close, args=(descriptor,), daemon=True)
            try:
                closer.start()
            except RuntimeError:  # no further thread is allowed
                os.close(descriptor)


def write_file(path: str, chunks: Sequence[Payload], spare: MemoryFile | None = None) -> None:
    """Replace a file by one that holds a payload, synced to disk where there is a disk.

    A spare file of the same directory is used if the payload fits, and closed.
    """
    if spare is not None:
        try:
            if block_file.size_of(chunks) <= spare.nbytes:
                spare.write(chunks)
                with suppress(OSError):  # /proc is hidden, or the directory is gone
                    spare.name(path)
                    return
        finally:
            spare.close()
    # The commit syncs the directory, for the files of all ranks at once.
    with replacement(path, sync_directory=False) as file:
        block_file.write(file, chunks)
