"""Logs of jobs: bounded, easy to follow, robust against full disks and kills."""

import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest

from fairlead.engines.keeper.log_file import (
    MAX_PARTS,
    LogFile,
    end_of,
    read_leases,
)

LINE = 16


def line(number: int) -> bytes:
    """Return a line that holds its offset in the log."""
    return f"{number * LINE:{LINE - 1}d}\n".encode()


def follow(directory: Path, after: int = 0, max_bytes: int = 50) -> tuple[bytes, int]:
    """Read the whole log as a follower does, in small chunks."""
    text = b""
    while True:
        chunk, after = read_leases(directory, 0, after, max_bytes)
        if not chunk:
            return text, after
        text += chunk


@contextmanager
def limited(kind: int, limit: int) -> Iterator[None]:
    """Limit the number or size of this process's files meanwhile."""
    soft, hard = resource.getrlimit(kind)
    resource.setrlimit(kind, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(kind, (soft, hard))


Open = Callable[..., LogFile]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Open]:
    """Open logs by name and part size; close them after the test."""
    with ExitStack() as stack:
        yield lambda name, *size: stack.enter_context(closing(LogFile(tmp_path / name, *size)))


def sizes(directory: Path) -> list[int]:
    return [path.stat().st_size for path in sorted(directory.iterdir())]


def test_a_follower_sees_every_byte_once_over_many_parts(tmp_path: Path, opened: Open) -> None:
    log = opened("1.0.log", 4 * LINE)
    seen, after = b"", 0
    for number in range(50):
        log.write(line(number))
        text, after = follow(tmp_path, after)
        seen += text
    assert seen == b"".join(map(line, range(50)))
    assert after == log.end == end_of(tmp_path / "1.0.log") == 50 * LINE
    assert follow(tmp_path, after) == (b"", after)


def test_all_kept_bytes_are_shown_at_their_offsets(tmp_path: Path, opened: Open) -> None:
    log = opened("1.0.log", 4 * LINE)
    for number in range(4 * MAX_PARTS):
        log.write(line(number))
    assert follow(tmp_path) == (b"".join(map(line, range(4 * MAX_PARTS))), log.end)
    for number in range(4 * MAX_PARTS, 50):
        log.write(line(number))
    assert sizes(tmp_path) == [4 * LINE] * (MAX_PARTS - 1) + [2 * LINE]
    kept = b"".join(map(line, range(50 - 4 * MAX_PARTS + 2, 50)))
    assert follow(tmp_path) == follow(tmp_path, 7) == (kept, 50 * LINE)
    assert follow(tmp_path, 49 * LINE + 3) == (line(49)[3:], 50 * LINE)


def test_a_later_lease_keeps_its_offsets_when_earlier_bytes_are_dropped(
    tmp_path: Path, opened: Open
) -> None:
    first, seen, after = opened("9.0.log", 2 * LINE), b"", 0
    for number in range(30):
        first.write(line(number))
    _, after = follow(tmp_path)
    assert after == 30 * LINE
    second = opened("10.0.log", 2 * LINE)
    opened("10.10.log").write(b"of another rank\n")
    for number in range(30, 60):
        second.write(line(number))
        text, after = follow(tmp_path, after)
        seen += text
    assert seen == b"".join(map(line, range(30, 60)))
    shown = [int(at) for at in follow(tmp_path)[0].split()]
    assert shown == [n * LINE for n in (*range(22, 30), *range(52, 60))]


def test_a_reopened_log_continues_at_its_end(tmp_path: Path, opened: Open) -> None:
    for number in range(20):
        log = opened("1.0.log", 3 * LINE)
        log.write(line(number))
        log.close()
    assert follow(tmp_path, 12 * LINE) == (b"".join(map(line, range(12, 20))), 20 * LINE)
    assert len(sizes(tmp_path)) == MAX_PARTS


def test_a_part_that_cannot_be_created_loses_output_only_until_it_can(
    tmp_path: Path, opened: Open
) -> None:
    log = opened("1.0.log", 2 * LINE)
    for number in range(6):
        log.write(line(number))
    before = follow(tmp_path)
    with limited(resource.RLIMIT_NOFILE, 0):
        for _ in range(10):
            log.write(b"lost\n")
    assert follow(tmp_path) == before == (b"".join(map(line, range(6))), 6 * LINE)
    log.write(line(6))
    with limited(resource.RLIMIT_NOFILE, 0):
        log.write(b"too long for the rest of this part\n")
        log.write(line(7))
    log.write(line(8))
    assert follow(tmp_path) == (b"".join(map(line, range(2, 9))), 9 * LINE)


def test_a_disk_that_fills_within_a_line_keeps_all_other_offsets(
    tmp_path: Path, opened: Open
) -> None:
    log = opened("1.0.log", 2 * LINE)
    log.write(line(0))
    with limited(resource.RLIMIT_FSIZE, LINE + 5):
        log.write(line(1))
        log.write(b"lost\n")
    assert log.end == LINE + 5
    log.write(b"afterwards\n")
    log.write(b"in the next part\n")
    expected = line(0) + line(1)[:5] + b"afterwards\nin the next part\n"
    assert follow(tmp_path) == (expected, len(expected))
    assert log.end == len(expected)


def test_a_copy_with_gaps_keeps_its_offsets(tmp_path: Path, opened: Open) -> None:
    log = opened("1.0.log")
    log.write(line(0), 0)
    log.write(line(1))
    log.write(line(5), 5 * LINE)
    log.write(line(6), 6 * LINE)
    assert log.end == end_of(tmp_path / "1.0.log") == 7 * LINE
    assert follow(tmp_path) == (b"".join(map(line, (0, 1, 5, 6))), 7 * LINE)
    assert follow(tmp_path, 3 * LINE) == (line(5) + line(6), 7 * LINE)


@pytest.mark.parametrize("kill_after_s", [0.02, 0.05, 0.08])
def test_a_log_continues_after_its_writer_is_killed_at_any_moment(
    tmp_path: Path, kill_after_s: float
) -> None:
    code = f"""
from pathlib import Path
from fairlead.engines.keeper.log_file import LogFile
log = LogFile(Path({str(tmp_path / "1.0.log")!r}), 2 * {LINE})
while True:
    log.write(f"{{log.end:{LINE - 1}d}}\\n".encode())
"""
    seen = after = 0
    for _ in range(3):
        with subprocess.Popen([sys.executable, "-c", code]) as writer:
            until = time.monotonic() + 90.0
            begun = end_of(tmp_path / "1.0.log")
            while end_of(tmp_path / "1.0.log") <= begun:
                assert time.monotonic() < until
            kill_at, wanted = time.monotonic() + kill_after_s, seen + 4
            while time.monotonic() < kill_at or seen < wanted:
                assert time.monotonic() < until
                text, after = read_leases(tmp_path, 0, after, 1 << 20)
                seen += check(text, after)  # the follower may be slower, never wrong
            writer.kill()
        text, after = read_leases(tmp_path, 0, after, 1 << 20)
        check(text, after)
        assert after == end_of(tmp_path / "1.0.log")
        kept = [int(at) for at in follow(tmp_path)[0].split()]
        assert kept == list(range(kept[0], after, LINE))
        assert len(sizes(tmp_path)) <= MAX_PARTS + 1  # killed before it removed the oldest


def check(text: bytes, reached: int) -> int:
    """Check the offsets in the text that was read; return the number of lines."""
    places = [int(at) for at in text.split()]
    assert places == sorted(set(places))
    assert not places or places[-1] + LINE == reached
    assert all(place % LINE == 0 for place in places)
    return len(places)
