"""Files with a checksum over blocks: several threads hash, read and write one at once.

A file is a header of 64 bytes and a payload. The header holds the payload's length and the SHA-256
over the hashes of its blocks in their order, so that it changes with any bit, block or length.
Earlier versions wrote the payload's own SHA-256, in hexadecimal; their files are still read.
Uses the standard library only, so that the job library can import it.
"""

import errno
import hashlib
import mmap
import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import BinaryIO

Payload = bytes | memoryview

HEADER = 64
BLOCK = 4 << 20
_MAGIC = b"FLBLOCK1"
_MAX_THREADS = 8
"""more threads than this wait for memory"""
_reserved: list[memoryview] = []
"""memory that the next large payload is read into"""
_in_use: list[memoryview] = []
"""reserved memory that a payload was read into"""
_POPULATE = 23
"""MADV_POPULATE_WRITE of Linux 5.14, which Python does not name"""
_MIN_COPY = 1 << 16
"""bytes from which a copy lets other threads run meanwhile"""


def write(file: BinaryIO, chunks: Sequence[Payload]) -> None:
    """Write the header and the chunks, as one payload, to an empty file."""
    descriptor, blocks = file.fileno(), _cut(chunks)

    def write_block(number: int) -> bytes:
        digest, position = hashlib.sha256(), HEADER + number * BLOCK
        for piece in blocks[number]:
            digest.update(piece)
            _write_all(descriptor, piece, position)
            position += len(piece)
        return digest.digest()

    hashes = _for_each(len(blocks), write_block)
    _write_all(descriptor, _header(sum(map(len, chunks)), hashes), 0)


def write_to_memory(memory: mmap.mmap, chunks: Sequence[Payload]) -> None:
    """Write the header and the chunks to the memory of a mapped file of ``size_of`` bytes.

    Raises OSError if the file system has no memory left for it.
    """
    blocks = _cut(chunks)
    populate(memory, 0, HEADER)

    def write_block(number: int) -> bytes:
        digest, position = hashlib.sha256(), HEADER + number * BLOCK
        populate(memory, position, position + sum(map(len, blocks[number])))
        for piece in blocks[number]:
            _copy(piece, memory, position)
            digest.update(piece)
            position += len(piece)
        return digest.digest()

    hashes = _for_each(len(blocks), write_block)
    memory[:HEADER] = _header(sum(map(len, chunks)), hashes)


def size_of(chunks: Sequence[Payload]) -> int:
    """Return the size of the file that holds the chunks."""
    return HEADER + sum(map(len, chunks))


def read(file: BinaryIO) -> Payload | None:
    """Return the payload, None if it does not match the header.

    A payload of several blocks is a view of memory that may be written, from which tensors are
    made without a copy.
    """
    descriptor, length = file.fileno(), _payload_length(file)
    header = os.pread(descriptor, HEADER, 0)
    payload = _memory_for(length)
    has_blocks = header.startswith(_MAGIC)

    def read_block(number: int) -> bytes:
        block = payload[number * BLOCK : (number + 1) * BLOCK]
        _read_all(descriptor, block, HEADER + number * BLOCK)
        return hashlib.sha256(block).digest() if has_blocks else b""

    hashes = _for_each(_count(length), read_block)
    if header != (_header(length, hashes) if has_blocks else _plain_header(payload)):
        return None
    return payload if length > BLOCK else bytes(payload)


def is_intact(file: BinaryIO) -> bool:
    """Return whether the payload matches the header."""
    descriptor, length = file.fileno(), _payload_length(file)
    header = os.pread(descriptor, HEADER, 0)
    if not header.startswith(_MAGIC):
        digest = hashlib.sha256()
        file.seek(HEADER)
        while part := file.read(BLOCK):
            digest.update(part)
        return header == digest.hexdigest().encode()

    def hash_block(number: int) -> bytes:
        block = bytearray(min(BLOCK, length - number * BLOCK))
        _read_all(descriptor, memoryview(block), HEADER + number * BLOCK)
        return hashlib.sha256(block).digest()

    return header == _header(length, _for_each(_count(length), hash_block))


def reserve(nbytes: int) -> None:
    """Fault in memory for one later read of a payload of at most this size.

    The read takes it and does not return it, so that nothing else is ever in it.
    """
    if nbytes > BLOCK:
        memory = map_memory(nbytes)
        populate(memory, 0, nbytes)
        reserve_memory(memoryview(memory))


def reserve_memory(memory: memoryview) -> None:
    """Keep this memory for the next read of a large payload, if the payload fits."""
    _reserved[:] = [memory]


def drop_read_memory() -> None:
    """Let reserved memory be freed once nothing refers to it.

    To free it takes a while: a read does not do so before training begins.
    """
    _in_use.clear()


def populate(memory: mmap.mmap, begin: int, end: int) -> None:
    """Fault in the pages of a part of mapped memory; other threads run meanwhile.

    Raises OSError if there is no memory. To touch memory that a file system cannot provide would
    kill the process instead.
    """
    import ctypes  # noqa: PLC0415  # slow to import; only large payloads need it

    begin -= begin % mmap.PAGESIZE
    # Nothing refers to the buffer longer, so that its owner can close it after an error.
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory, begin))
    madvise = ctypes.CDLL(None, use_errno=True).madvise
    madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    if madvise(address, end - begin, _POPULATE) == 0:
        return
    number = ctypes.get_errno()
    if number == errno.EINVAL:  # an older kernel
        for at in range(begin, end, mmap.PAGESIZE):
            memory[at] = memory[at]
        return
    number = errno.ENOSPC if number == errno.EFAULT else number
    raise OSError(number, os.strerror(number))


def can_populate() -> bool:
    """Return whether the kernel reports a lack of memory in ``populate``."""
    release = os.uname().release.split(".")
    return tuple(int("0" + part) for part in release[:2] if part.isdigit()) >= (5, 14)


def _copy(piece: memoryview, memory: mmap.mmap, position: int) -> None:
    """Copy a piece to mapped memory; other threads run meanwhile if it is large."""
    if len(piece) < _MIN_COPY or piece.readonly:
        memory[position : position + len(piece)] = piece
        return
    import ctypes  # noqa: PLC0415  # as above

    source = ctypes.addressof(ctypes.c_char.from_buffer(piece))
    target = ctypes.addressof(ctypes.c_char.from_buffer(memory, position))
    ctypes.memmove(target, source, len(piece))


def _memory_for(length: int) -> memoryview:
    """Return memory for a payload: reserved, if there is enough."""
    if length <= BLOCK:
        return memoryview(bytearray(max(length, 0)))
    if _reserved and len(_reserved[0]) >= length:
        _in_use[:] = [_reserved.pop()]
        return _in_use[0][:length]
    return memoryview(map_memory(length))


def map_memory(nbytes: int) -> mmap.mmap:
    """Return zeroed memory, in huge pages where the kernel has them: it is faulted in faster."""
    memory = mmap.mmap(-1, nbytes)
    with suppress(OSError, AttributeError):  # a kernel without huge pages
        memory.madvise(mmap.MADV_HUGEPAGE)
    return memory


def _payload_length(file: BinaryIO) -> int:
    return os.fstat(file.fileno()).st_size - HEADER


def _count(length: int) -> int:
    return max(-(-length // BLOCK), 0)


def _header(length: int, hashes: Sequence[bytes]) -> bytes:
    start = _MAGIC + length.to_bytes(8, "big", signed=True)
    return (start + hashlib.sha256(start + b"".join(hashes)).digest()).ljust(HEADER, b"\0")


def _plain_header(payload: memoryview) -> bytes:
    return hashlib.sha256(payload).hexdigest().encode()


def _cut(chunks: Sequence[Payload]) -> list[list[memoryview]]:
    """Return the pieces of chunks that make up each block."""
    blocks: list[list[memoryview]] = []
    room = 0
    for chunk in chunks:
        rest = memoryview(chunk)
        while rest:
            if not room:
                blocks.append([])
                room = BLOCK
            blocks[-1].append(rest[:room])
            taken = len(blocks[-1][-1])
            rest, room = rest[taken:], room - taken
    return blocks


def _write_all(descriptor: int, piece: Payload, position: int) -> None:
    rest = memoryview(piece)
    while rest:
        written = os.pwrite(descriptor, rest, position)
        rest, position = rest[written:], position + written


def _read_all(descriptor: int, block: memoryview, position: int) -> None:
    """Fill a block; its end stays as it was if the file ends before."""
    while block:
        count = os.preadv(descriptor, [block], position)
        if not count:
            return
        block, position = block[count:], position + count


def _for_each(count: int, work: Callable[[int], bytes]) -> list[bytes]:
    """Return the results of ``work`` for 0 to ``count`` - 1, computed by several threads."""
    results, waiting = [b""] * count, deque(range(count))
    errors: list[BaseException] = []

    def take() -> None:
        while not errors:
            try:
                number = waiting.popleft()
            except IndexError:
                return
            try:
                results[number] = work(number)
            except BaseException as error:  # raised by the thread that waits for all of them
                errors.append(error)

    others = [
        threading.Thread(target=take, name="fairlead-blocks", daemon=True)
        for _ in range(min(len(os.sched_getaffinity(0)), _MAX_THREADS, count) - 1)
    ]
    for thread in others:
        thread.start()
    take()
    for thread in others:
        thread.join()
    if errors:
        raise errors[0]
    return results
