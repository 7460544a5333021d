"""Run many seeds of the fault simulation on all cores; print progress and failing seeds."""

import argparse
import multiprocessing
import os
import sys
import time

from tests.faults.run import run
from tests.support.plain_logs import use_plain_tracebacks

_CHUNK = 50


def run_chunk(first: int) -> tuple[int, int, list[tuple[int, str, str]]]:
    """Run some seeds; return their number, their events, and the violations."""
    events, broken = 0, []
    for seed in range(first, first + _CHUNK):
        result = run(seed)
        events += result.events
        if result.violation is not None:
            broken.append((seed, result.violation.splitlines()[0], result.command))
    return _CHUNK, events, broken


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=100_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    began = time.monotonic()
    done = events = 0
    broken: list[tuple[int, str, str]] = []
    chunks = range(options.first, options.first + options.seeds, _CHUNK)
    spawn = multiprocessing.get_context("spawn")
    with spawn.Pool(options.processes, initializer=use_plain_tracebacks) as pool:
        for count, more, failed in pool.imap_unordered(run_chunk, chunks):
            done, events = done + count, events + more
            broken += failed
            for _, violation, command in failed:
                print(f"\n{command}\n    {violation}")
            took = time.monotonic() - began
            left = (len(chunks) * _CHUNK - done) * took / done
            progress = f"{done:,} seeds, {len(broken)} broken, {done / took:.0f}/s"
            print(f"\r{progress}, {left / 60:.0f} min left   ", end="", flush=True)
    took = time.monotonic() - began
    print(f"\n{done:,} seeds, {events:,} events, {len(broken)} broken, in {took:.0f} s")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
