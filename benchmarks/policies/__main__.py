"""Time of whole allocations for each policy, against the limits of ranges.toml.

Times are milliseconds of process CPU, the best of several calls; cvxpy's, where it finds a
solution, are of the same program in the same run. A broken limit makes the exit status 1. See
levels.py (hierarchical, finish-time), units.py (packed) and tenants.py (OEF, trading).

    python -m benchmarks.policies [--quick]
"""

import argparse
import sys
import tomllib
from pathlib import Path

from benchmarks.policies import levels as policies_levels
from benchmarks.policies import tenants as policies_tenants
from benchmarks.policies import units as policies_units

from fairlead.files import read_speeds


def measured(quick: bool) -> dict[str, tuple[float, float | None]]:
    """Return name → our milliseconds and the peer's."""
    times_ms: dict[str, tuple[float, float | None]] = {}
    levels = policies_levels.figures()
    for name, seconds in levels.items():
        policy, _, load = name.rpartition("-")
        if policy != "cvxpy-plain":
            peer = 1e3 * levels[f"cvxpy-plain-{load}"]
            times_ms[f"{policy}, 2048 distinct, {load}"] = (1e3 * seconds, peer)
    if policies_units.GAVEL.is_file():
        table = read_speeds(policies_units.GAVEL)
        for jobs in (512,) if quick else (512, 2048):
            for load in policies_units.LOADS:
                row = policies_units.measure(table, jobs, load, 3 if quick else 7)
                times_ms[f"{row.case}, {load}"] = (row.ms, row.peer_ms)
    else:
        print("packed: not measured, the reference speeds are not here (FAIRLEAD_SHARED)")
    for line in policies_tenants.rows(quick):
        times_ms[line.case] = (line.ms, line.peer_ms)
    return times_ms


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer sizes, no slow peer")
    quick = parser.parse_args().quick
    text = (Path(__file__).parents[1] / "ranges.toml").read_text(encoding="utf-8")
    limits = tomllib.loads(text)["policies"]
    broken = 0
    print(f"{'case':46} {'ms':>8} {'at most':>8} {'cvxpy ms':>9}")
    for name, (ms, peer) in measured(quick).items():
        key = next((prefix for prefix in limits if name.startswith(prefix)), None)
        most = limits[key]["most"] if key else None
        beside = "" if peer is None else f"{peer:.0f}"
        verdict = "  BROKEN" if most is not None and ms > most else ""
        broken += bool(verdict)
        print(f"{name:46} {ms:8.1f} {'' if most is None else most!s:>8} {beside:>9}{verdict}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
