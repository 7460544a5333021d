"""Saving: memory that is taken ahead, and files without a name until they are complete."""

import mmap
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from tests.support.waiting import until

from fairlead import block_file
from fairlead.job import checkpoint
from fairlead.job.saving import memory_file, saver
from fairlead.job.saving.ahead import Ahead
from fairlead.job.saving.memory_file import MemoryFile, remove_file, write_file
from fairlead.job.saving.saver import LIMIT_VARIABLE, Saver

BLOCK = 1 << 12
SIZES = (1, BLOCK + 1, 9 * BLOCK + 7)


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_file, "BLOCK", BLOCK)
    monkeypatch.setattr(block_file, "_MIN_COPY", 1 << 10)
    monkeypatch.setattr(memory_file, "PIECE", BLOCK)
    monkeypatch.setattr(saver, "_MARGIN", BLOCK)


@pytest.fixture
def memory() -> Iterator[Path]:
    """Return a directory of a file system in memory."""
    if not memory_file.is_in_memory("/dev/shm"):
        pytest.skip("/dev/shm is not a file system in memory")
    with TemporaryDirectory(dir="/dev/shm") as name:
        yield Path(name)


def test_a_file_in_memory_has_no_name_until_it_is_complete(memory: Path) -> None:
    for size in SIZES:
        payload = bytearray(os.urandom(size))
        chunks: list[block_file.Payload] = [b"begin", memoryview(payload)]
        chunks.append(memoryview(bytes(payload)))
        for _ in range(2):  # a file of the name exists the second time
            file = MemoryFile(str(memory), block_file.size_of(chunks) + BLOCK)
            assert {*os.listdir(memory)} <= {"file"}
            file.write(chunks)
            assert {*os.listdir(memory)} <= {"file"}
            file.name(str(memory / "file"))
            file.close()
        with (memory / "file").open("rb") as written:
            assert block_file.is_intact(written)
            assert block_file.read(written) == b"".join(chunks)
        (memory / "file").unlink()
    unnamed = MemoryFile(str(memory), BLOCK)
    unnamed.close()
    assert not os.listdir(memory)


def test_the_content_does_not_depend_on_the_way_it_was_written(
    memory: Path, tmp_path: Path
) -> None:
    payload = os.urandom(5 * BLOCK)
    contents = []
    for directory, nbytes in (memory, 0), (memory, BLOCK), (memory, 9 * BLOCK), (tmp_path, 0):
        spare = MemoryFile(str(directory), nbytes) if nbytes else None
        write_file(str(directory / "file"), [payload], spare)
        contents.append((directory / "file").read_bytes())
        assert os.listdir(directory) == ["file"]
    assert len({*contents}) == 1
    assert not list(memory_file._open_files)[len(contents) :]


def test_a_checkpoint_that_fills_the_file_system_is_an_error_and_leaves_no_memory(
    memory: Path,
) -> None:
    mount = ("mount", "-t", "tmpfs", "-o", "size=64k", "none", str(memory))
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("this user cannot mount")
    try:
        before = os.statvfs(memory).f_bfree
        for spare in None, MemoryFile(str(memory), 65 * BLOCK):
            with pytest.raises(OSError, match="No space"):
                write_file(str(memory / "file"), [bytes(64 * BLOCK)], spare)
        spare = MemoryFile(str(memory), 64 * BLOCK)
        with pytest.raises(OSError, match="No space"):
            list(spare.populate())
        spare.close()
        until(lambda: os.statvfs(memory).f_bfree == before)
        assert not os.listdir(memory)
    finally:
        subprocess.run(["umount", str(memory)], check=True)


def test_a_forked_worker_does_not_keep_the_memory_of_a_spare_file(memory: Path) -> None:
    spare = MemoryFile(str(memory), BLOCK)
    descriptor = spare._descriptor
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        is_open = os.path.exists(f"/proc/self/fd/{descriptor}")
        os.write(writing, b"open" if is_open or not spare._memory.closed else b"closed")
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reading, 9) == b"closed"
    spare.close()
    for end in (reading, writing):
        os.close(end)


def test_work_ahead_pauses_and_stops_between_two_pieces() -> None:
    ahead, done, may_go_on = Ahead(), [], threading.Semaphore(0)

    def pieces() -> Iterator[None]:
        for number in range(9):
            may_go_on.acquire()
            done.append(number)
            yield

    ahead.begin(pieces())
    may_go_on.release(3)
    until(lambda: len(done) == 3)
    stopping = threading.Thread(target=ahead.stop)
    stopping.start()
    until(ahead._stopping.is_set)
    may_go_on.release()
    stopping.join()
    assert len(done) in (3, 4)
    may_go_on.release(99)
    ahead.begin(pieces())
    ahead.wait()
    assert done[-9:] == list(range(9))


def _fail() -> Iterator[None]:
    yield
    raise OSError


def test_work_ahead_that_fails_ends_quietly() -> None:
    ahead = Ahead()
    ahead.begin(_fail())
    ahead.wait()
    ahead.stop()
    assert threading.active_count() < 20


def test_memory_for_the_next_save_is_taken_after_two_steps(memory: Path) -> None:
    state = {"large": bytes(4 * BLOCK)}
    checkpoint.raise_fence(str(memory), 1)
    made = Saver(str(memory), {LIMIT_VARIABLE: "1000"})
    for steps in (1, 2):
        chunks = made.encode(state)
        spare = made.take_spare()
        assert (spare is not None) == (steps > 1)
        checkpoint.write(str(memory), 1, steps, 0, *chunks, spare=spare)
        checkpoint.commit(str(memory), 1, steps, 1)
        made.step_done(lambda: state)
        assert made._spare is None
        made.step_done(lambda: state)
        made.step_done(lambda: state)
        made._ahead.wait()
        assert made._spare is not None
    assert {*os.listdir(memory)} == {"fence", "lock", "latest.json", "1-2.0.ckpt"}
    payload = checkpoint.read(str(memory), 0)
    assert payload is not None
    assert bytes(payload) == b"".join(chunks)
    # A process of a later lease knows the size from the checkpoint.
    later = Saver(str(memory), {LIMIT_VARIABLE: "1000"})
    later.step_done(lambda: state)
    later.step_done(lambda: state)
    later._ahead.wait()
    for one in (made, later):
        spare = one.take_spare()
        assert spare is not None
        spare.close()


def test_a_save_uses_the_memory_that_was_taken_so_far(
    memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began = threading.Event()
    take = block_file.populate

    def populate(file: mmap.mmap, begin: int, end: int) -> None:
        began.set()
        take(file, begin, end)

    monkeypatch.setattr("fairlead.job.saving.ahead._PAUSE", 1e9)
    monkeypatch.setattr(Saver, "host_memory", lambda _: None)  # PyTorch may be loaded
    monkeypatch.setattr(block_file, "populate", populate)
    checkpoint.raise_fence(str(memory), 1)
    state, made = {"large": os.urandom(9 * BLOCK)}, Saver(str(memory), {LIMIT_VARIABLE: "1000"})
    made.encode(state)
    made.step_done(lambda: state)
    made.step_done(lambda: state)
    assert began.wait(30)
    chunks, spare = made.encode(state), made.take_spare()
    assert spare is not None
    assert os.fstat(spare._descriptor).st_blocks * 512 < 9 * BLOCK
    checkpoint.write(str(memory), 1, 1, 0, *chunks, spare=spare)
    assert checkpoint.is_intact(str(memory / "1-1.0.ckpt"))


def test_memory_is_not_taken_beyond_the_limit_or_without_need(
    memory: Path, tmp_path: Path
) -> None:
    state = {"large": bytes(4 * BLOCK)}
    cases: tuple[tuple[Path, dict[str, str]], ...]
    cases = ((memory, {}), (memory, {LIMIT_VARIABLE: "0.0001"}), (tmp_path, {LIMIT_VARIABLE: "9"}))
    for directory, environment in cases:
        made = Saver(str(directory), environment)
        made.encode(state)
        for _ in range(4):
            made.step_done(lambda: state)
        made._ahead.wait()
        assert made._spare is None
    assert not saver._has_room(1 << 60, float("inf"))


def test_memory_is_taken_once_the_last_write_has_ended(memory: Path) -> None:
    state = {"large": bytes(4 * BLOCK)}
    made, may_end = Saver(str(memory), {LIMIT_VARIABLE: "1000"}), threading.Event()
    made.encode(state)

    def wait() -> None:
        may_end.wait(30)

    made.writer.begin(wait)
    for _ in range(4):
        made.step_done(lambda: state)
    assert made._spare is None
    may_end.set()
    made.writer.wait()
    made.step_done(lambda: state)
    made._ahead.wait()
    spare = made.take_spare()
    assert spare is not None
    spare.close()


def test_a_removed_file_is_gone_at_once_and_its_memory_soon(
    memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_file, "_LARGE", BLOCK)
    path = memory / "file"
    for size in SIZES:
        path.write_bytes(bytes(size))
        with path.open("rb") as file:
            remove_file(str(path))
            assert not path.exists()
            until(lambda: len(_descriptors_of(file.fileno())) == 1)
        remove_file(str(path))  # there is none
    os.mkfifo(path)
    remove_file(str(path))
    path.symlink_to(memory)
    remove_file(str(path))
    path.mkdir()
    with pytest.raises(OSError, match=str(path)):
        remove_file(str(path))


def _descriptors_of(descriptor: int) -> list[str]:
    """Return this process's descriptors of the same file."""
    wanted, names = os.fstat(descriptor), []
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            if os.path.samestat(os.stat(f"/proc/self/fd/{name}"), wanted):
                names.append(name)
    return names
