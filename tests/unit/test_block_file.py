"""Files with a checksum over blocks: every change of a file is detected, by any of its threads."""

import hashlib
import os
import random
import threading
from pathlib import Path

import pytest

from fairlead import block_file

BLOCK = 1 << 12
SIZES = (0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 5 * BLOCK, 5 * BLOCK + 7)


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_file, "BLOCK", BLOCK)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3})


def write(path: Path, *chunks: bytes | memoryview) -> bytes:
    with path.open("wb") as file:
        block_file.write(file, chunks)
    return path.read_bytes()


def read(path: Path) -> bytes | None:
    """Return the payload if the file is intact; both functions must agree."""
    with path.open("rb") as file:
        intact, payload = block_file.is_intact(file), block_file.read(file)
    assert intact == (payload is not None)
    return None if payload is None else bytes(payload)


def test_a_payload_of_any_size_and_chunks_comes_back(tmp_path: Path) -> None:
    rng = random.Random(1)
    for size in SIZES:
        payload = rng.randbytes(size)
        cuts = sorted(rng.randrange(size + 1) for _ in range(9))
        chunks = [payload[i:j] for i, j in zip([0, *cuts], [*cuts, size], strict=True)]
        write(tmp_path / "file", *chunks[:4], *(memoryview(chunk) for chunk in chunks[4:]))
        assert read(tmp_path / "file") == payload


def test_every_damage_is_detected(tmp_path: Path) -> None:
    path, payload = tmp_path / "file", random.Random(2).randbytes(3 * BLOCK + 100)
    content = write(path, payload)
    start = block_file.HEADER
    blocks = [content[i : i + BLOCK] for i in range(start, len(content), BLOCK)]
    header = content[:start]
    damaged = [
        *(flip(content, i) for i in range(start)),  # every byte of the header
        *(flip(content, start + i * BLOCK + at) for i in range(3) for at in (0, BLOCK - 1)),
        flip(content, len(content) - 1),
        *(content[:length] for length in (0, 1, 8, 63, 64, 65, start + BLOCK, len(content) - 1)),
        content + b"\0",
        header + b"".join([blocks[1], blocks[0], *blocks[2:]]),  # another order
        header + b"".join([blocks[0], blocks[0], *blocks[2:]]),
        header + b"".join(blocks[1:]),
        write(tmp_path / "other", payload[:BLOCK])[:start] + content[start:],
    ]
    for one in damaged:
        path.write_bytes(one)
        assert read(path) is None
    path.write_bytes(content)
    assert read(path) == payload


def flip(content: bytes, at: int) -> bytes:
    return content[:at] + bytes([content[at] ^ 0x10]) + content[at + 1 :]


def test_files_of_earlier_versions_are_read_and_checked(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for size in SIZES:
        payload = random.Random(3).randbytes(size)
        old = hashlib.sha256(payload).hexdigest().encode() + payload
        path.write_bytes(old)
        assert read(path) == payload
        for one in (flip(old, 5), flip(old, len(old) - 1), old + b"!", old[:-1]):
            path.write_bytes(one)
            assert read(path) is None


def test_several_threads_work_on_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "file", bytes(2 * BLOCK))
    both = threading.Barrier(2)
    read_all = block_file._read_all

    def meet(*arguments: object) -> None:
        both.wait(30)
        read_all(*arguments)  # type: ignore[arg-type]  # passed on

    monkeypatch.setattr(block_file, "_read_all", meet)
    with (tmp_path / "file").open("rb") as file:
        assert block_file.read(file) == bytes(2 * BLOCK)


def test_the_error_of_a_thread_reaches_the_caller(tmp_path: Path) -> None:
    with open("/dev/full", "wb", buffering=0) as full, pytest.raises(OSError, match="No space"):
        block_file.write(full, [bytes(9 * BLOCK)])
    write(tmp_path / "file", bytes(9 * BLOCK))
    assert threading.active_count() < 20
