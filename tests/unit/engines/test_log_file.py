"""A job's log is bounded, can be followed, and outlasts full disks and kills."""

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
    """A line that says where in the log it is."""
    return f"{number * LINE:{LINE - 1}d}\n".encode()


def follow(directory: Path, after: int = 0, most: int = 50) -> tuple[bytes, int]:
    """Read all there is for a follower, in small pieces."""
    text = b""
    while True:
        piece, after = read_leases(directory, 0, after, most)
        if not piece:
            return text, after
        text += piece


@contextmanager
def limited(what: int, most: int) -> Iterator[None]:
    """Let the system refuse this process more files, or larger ones."""
    soft, hard = resource.getrlimit(what)
    resource.setrlimit(what, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(what, (soft, hard))


Open = Callable[..., LogFile]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Open]:
    """Opens logs by name, and a part's bytes; closes them when the test is over."""
    with ExitStack() as stack:
        yield lambda name, *most: stack.enter_context(closing(LogFile(tmp_path / name, *most)))


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


def test_all_that_is_kept_is_shown_and_the_rest_keeps_its_place(
    tmp_path: Path, opened: Open
) -> None:
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


def test_a_later_lease_follows_in_its_place_whatever_was_dropped(
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


def test_a_log_that_is_opened_again_goes_on_where_it_ended(tmp_path: Path, opened: Open) -> None:
    for number in range(20):
        log = opened("1.0.log", 3 * LINE)
        log.write(line(number))
        log.close()
    assert follow(tmp_path, 12 * LINE) == (b"".join(map(line, range(12, 20))), 20 * LINE)
    assert len(sizes(tmp_path)) == MAX_PARTS


def test_a_part_that_cannot_be_begun_loses_output_only_until_it_can(
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
        log.write(b"too long for what is left of this part\n")
        log.write(line(7))
    log.write(line(8))
    assert follow(tmp_path) == (b"".join(map(line, range(2, 9))), 9 * LINE)


def test_a_disk_that_takes_half_a_line_leaves_all_others_in_their_place(
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


def test_a_copy_leaves_out_what_it_could_not_get(tmp_path: Path, opened: Open) -> None:
    log = opened("1.0.log")
    log.write(line(0), 0)
    log.write(line(1))
    log.write(line(5), 5 * LINE)
    log.write(line(6), 6 * LINE)
    assert log.end == end_of(tmp_path / "1.0.log") == 7 * LINE
    assert follow(tmp_path) == (b"".join(map(line, (0, 1, 5, 6))), 7 * LINE)
    assert follow(tmp_path, 3 * LINE) == (line(5) + line(6), 7 * LINE)


@pytest.mark.parametrize("kill_after_s", [0.02, 0.05, 0.08])
def test_a_writer_killed_at_any_moment_leaves_a_log_that_goes_on(
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
            until = time.monotonic() + 30.0
            begun = end_of(tmp_path / "1.0.log")
            while end_of(tmp_path / "1.0.log") <= begun:
                assert time.monotonic() < until
            until = time.monotonic() + kill_after_s
            while time.monotonic() < until:  # one may be slower than the writer, never wrong
                text, after = read_leases(tmp_path, 0, after, 1 << 20)
                seen += check(text, after)
            writer.kill()
        text, after = read_leases(tmp_path, 0, after, 1 << 20)
        check(text, after)
        assert after == end_of(tmp_path / "1.0.log")
        kept = [int(at) for at in follow(tmp_path)[0].split()]
        assert kept == list(range(kept[0], after, LINE))
        assert len(sizes(tmp_path)) <= MAX_PARTS + 1  # killed before the oldest went
    assert seen > 10


def check(text: bytes, reached: int) -> int:
    """Hold what was read against the places that it names; return how many lines it has."""
    places = [int(at) for at in text.split()]
    assert places == sorted(set(places))
    assert not places or places[-1] + LINE == reached
    assert all(place % LINE == 0 for place in places)
    return len(places)
