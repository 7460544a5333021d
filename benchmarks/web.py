"""Web pages: times to draw a week of devices and 10,000 jobs, and the cost of two hundred pages.

    python -m benchmarks.web [--json]

A real ``fairlead serve`` runs on one core, with an engine that starts no processes. The database
gets a generated week of leases. A real Chromium opens the timeline; then two hundred clients do
what an open list of jobs does: they follow the events and fetch the list after each. The browser
opens a list of 10,000 jobs and searches in it. On a server with rounds of ten seconds, which
change hundreds of leases each, two hundred clients must delay no plan beyond the end of its round.
Limits are those of ranges.toml; a broken one makes the exit status 1.
"""

import argparse
import asyncio
import contextlib
import itertools
import sqlite3
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from benchmarks.live.__main__ import Server, new_jobs, server
from benchmarks.live.load import Ask, all_of
from benchmarks.ranges import report
from tests.e2e.web.browser import Visitor, open_browser

from fairlead.live.timeline.hours import HOUR_S, KIND, Hour, hour_of, key
from fairlead.live.timeline.intervals import OPEN, HeldInterval, Intervals
from fairlead.live.timeline.outages import Outage
from fairlead.live.timeline.shares import ShareColumns

DEVICES, DAYS, PAGES = 1000, 7, 200
JOBS, WATCHED_JOBS = 10_000, 2_000
SEARCHES = 9
ROUND_S, ROUNDS = 10.0, 4
EVENT_S = 5.0
"""time between two events while pages are open"""
WATCHED_S = 20.0
LIST = "/v1/jobs?limit=60&newest=true&count=true"
_DRAWN = """() => {
  const canvas = document.querySelector(".timeline canvas");
  if ((canvas?.height ?? 0) <= 1000) return false;
  // Reading a pixel waits until all of them are there.
  return canvas.getContext("2d").getImageData(200, 500, 1, 1).data.length === 4;
}"""
_FIRST_NAME = "() => document.querySelector('.rows .name')?.textContent"
_ENDINGS = ("finished", "preempted", "preempted", "failed", "lost")


def week(end: float) -> Iterator[HeldInterval]:
    """Yield leases of 1 to 8 devices, an hour and a half long on average, without idle time."""
    rng, lease = np.random.default_rng(1), itertools.count(1)
    for node in range(0, DEVICES, 8):
        ends = np.cumsum(rng.permutation([1, 1, 2, 4])).tolist()
        for first, last in itertools.pairwise([0, *ends]):
            devices, at = tuple(range(node + first, node + last)), end - DAYS * 86400.0
            while at < end:
                until = at + float(rng.exponential(5400.0))
                number = int(rng.integers(20_000))
                ending = _ENDINGS[int(rng.integers(len(_ENDINGS)))]
                job, tenant = f"w{number}", f"team-{number % 20}"
                yield HeldInterval(next(lease), job, tenant, devices, at, min(until, end), ending)
                at = until


def store_week(database: Path, end: float) -> int:
    """Write a week into a server's database; return the number of leases."""
    leases = list(week(end))
    hours: dict[int, list[HeldInterval]] = {}
    for interval in leases:
        for hour in range(hour_of(interval.began_at), hour_of(interval.ended_at) + 1):
            over = (hour + 1) * HOUR_S
            part = interval._replace(ended_at=over, ending=OPEN)
            hours.setdefault(hour, []).append(interval if interval.ended_at <= over else part)
    texts = {
        hour: Hour(Intervals.of(rows), ShareColumns.of(()), [_outage(hour)]).as_text()
        for hour, rows in hours.items()
    }
    documents = [(KIND, key(hour), text) for hour, text in texts.items()]
    with contextlib.closing(sqlite3.connect(database, timeout=30)) as connection, connection:
        connection.executemany("INSERT OR REPLACE INTO documents VALUES (?, ?, ?)", documents)
    return len(leases)


def _outage(hour: int) -> Outage:
    """Return ten minutes of an hour for which one node was down."""
    return Outage(f"n{hour % 125}", hour * HOUR_S, hour * HOUR_S + 600.0)


def drawing(running: Server) -> dict[str, float]:
    """Return the seconds until the timeline of a week is drawn, first and from memory."""
    end = (hour_of(time.time()) - 1) * HOUR_S
    leases = store_week(running.data / "fairlead.db", end)
    address = f"timeline?from={end - DAYS * 86400.0}&to={end}"
    figures: dict[str, float] = {"leases of the week": leases}
    with open_browser() as browser:
        visitor = Visitor(browser, running.url).log_in(running.token)
        for name in ("drawn", "drawn again"):
            visitor.open("submit")
            began = time.perf_counter()
            visitor.open(address)
            while not visitor.page.evaluate(_DRAWN):
                time.sleep(0.01)
            figures[f"week of 1,000 devices, {name}, s"] = time.perf_counter() - began
        visitor.close()
    return figures


async def page(port: int, token: str, until: float) -> None:
    """Do what an open list of jobs does until a time."""
    head = f"HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n\r\n"
    events, writer = await asyncio.open_connection("127.0.0.1", port)
    lists, asking = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET /v1/events {head}".encode())
    rng, fetched = np.random.default_rng(), 0.0
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout_at(until):
            while True:
                asking.write(f"GET {LIST} {head}".encode())
                fetched = time.monotonic()
                await _answer(lists)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(10.0):
                        while not (await events.readline()).startswith(b"data:"):
                            pass
                wait = max(0.15, fetched + 1.5 - time.monotonic())
                await asyncio.sleep(wait + 0.3 * float(rng.random()))
    writer.close()
    asking.close()


async def _answer(reader: asyncio.StreamReader) -> None:
    """Read one answer."""
    length = 0
    while (line := await reader.readline()).strip():
        name, _, value = line.decode().partition(":")
        length = int(value) if name.lower() == "content-length" else length
    await reader.readexactly(length)


def listing(running: Server, asks: Iterator[Ask]) -> dict[str, float]:
    """Return the time until a list of 10,000 jobs shows its rows, and the median of searches."""
    known = int(running.client.raw("GET", "/v1/jobs?limit=1&count=true")[1]["fairlead-total"])
    all_of(running.url, itertools.islice(asks, JOBS - known), connections=8)
    with open_browser() as browser:
        visitor = Visitor(browser, running.url).log_in(running.token)
        page = visitor.page
        began = time.perf_counter()
        page.reload()
        page.locator(".rows [role=row]").first.wait_for()
        shown_s = time.perf_counter() - began
        took = []
        for number in range(1234, 1234 + SEARCHES):
            began = time.perf_counter()
            page.get_by_label("Search").fill(name := f"try-{number}")
            while page.evaluate(_FIRST_NAME) != name:
                pass
            took.append(time.perf_counter() - began)
        visitor.close()
    return {
        "10,000 jobs, first rows, s": shown_s,
        "10,000 jobs, search, ms": 1e3 * float(np.median(took)),
    }


async def open_pages(running: Server, seconds: float) -> None:
    """Keep two hundred pages open for a time."""
    until = asyncio.get_running_loop().time() + seconds
    port = int(running.url.rpartition(":")[2])
    await asyncio.gather(*(page(port, running.token, until) for _ in range(PAGES)))


def planned() -> dict[str, float]:
    """Return the longest time from the due time of a plan to its end beside open pages.

    The plan of the next round is due a quarter of a round before its end: 2.5 s.
    """
    with server(devices=DEVICES, round_s=ROUND_S) as running:
        asks = itertools.islice(new_jobs(running.token), WATCHED_JOBS)
        all_of(running.url, asks, connections=8)
        asyncio.run(open_pages(running, ROUND_S * ROUNDS))
        longest = running.quantiles("fairlead_round_seconds")["1.0"]
    return {"200 pages, longest plan of a round of 10 s, s": longest}


def watched(running: Server, asks: Iterator[Ask]) -> dict[str, float]:
    """Return the part of a core that two hundred pages cost beyond the events themselves."""
    all_of(running.url, itertools.islice(asks, WATCHED_JOBS), connections=8)
    time.sleep(2.0)

    def events() -> float:
        """Submit a job every few seconds; return the part of a core that the server uses."""
        used, began = running.cpu_s, time.monotonic()
        while time.monotonic() - began < WATCHED_S:
            all_of(running.url, itertools.islice(asks, 1), connections=1)
            time.sleep(EVENT_S)
        return (running.cpu_s - used) / (time.monotonic() - began)

    async def pages() -> float:
        opened = asyncio.create_task(open_pages(running, WATCHED_S + EVENT_S + 5.0))
        await asyncio.sleep(4.0)
        part = await asyncio.to_thread(events)
        await opened
        return part

    alone = events()
    return {"200 pages, part of a core": asyncio.run(pages()) - alone}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    with server(devices=DEVICES, round_s=60.0) as running:
        asks = new_jobs(running.token)
        figures = {**drawing(running), **watched(running, asks), **listing(running, asks)}
    return report("web", {**figures, **planned()}, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
