"""Error of the simulated makespan of ten jobs of two tenants on a private Slurm.

    python -m benchmarks.slurm_prediction [--policies max-min,hadar] [--runs 2] [--records DIR]

Real training processes, with gangs over nodes, run under a real server as root. The simulator gets
only the arrival times of jobs and nodes and the mean overhead of a lease; with --records each run
writes a file with all leases, live and simulated, side by side. Limits are
those of ranges.toml (``slurm-prediction``); a broken one makes the exit status 1. They do not
apply if leases cost more than a third of a round: on such a busy machine an average is not
meaningful. A run takes three to four minutes: a job that ends just after its round costs a whole
round, so a round must be much shorter than the permitted error.
"""

import argparse
import json
import os
import sys
import tempfile
import tomllib
from pathlib import Path

from tests.e2e.slurm.prediction import course
from tests.e2e.slurm.server import SlurmServer
from tests.e2e.slurm.ten_jobs import run_ten

from fairlead.private_clusters.slurm import SlurmCluster

_LONGER, _ROUND_S = 12.0, 10.0
_POLICIES = "max-min,gandiva-fair,hadar"


def compared(
    slurm: SlurmCluster, root: Path, policy: str, records: Path | None
) -> dict[str, float]:
    """Return the error of the simulated run relative to the live one."""
    load = os.getloadavg()[0]
    server = SlurmServer(root, slurm)
    try:
        run_ten(server.start(policy=policy, round_s=_ROUND_S), _LONGER)
        run = course(server, policy, _ROUND_S)
    finally:
        server.stop()
    predicted_s = run.predicted_s(records)
    return {
        "took, s": run.took_s,
        "predicted, s": predicted_s,
        "error": predicted_s / run.took_s - 1,
        "leases": len(run.leases),
        "a lease, s": run.lease_s,
        "its end, s": sum(lease.ends_s for lease in run.leases) / len(run.leases),
        "steps late, s a lease": sum(lease.late_s for lease in run.leases) / len(run.leases),
        "load average before": load,
        "load average": os.getloadavg()[0],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--policies", default=_POLICIES)
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--records", type=Path, help="a directory for files of all leases")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    text = Path(__file__).with_name("ranges.toml").read_text(encoding="utf-8")
    limits, broken = tomllib.loads(text)["slurm-prediction"], 0
    if options.records:
        options.records.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="fairlead-slurm-", ignore_cleanup_errors=True) as name:
        slurm = SlurmCluster(Path(name) / "slurm")
        os.environ |= slurm.environment
        try:
            slurm.start()
            for policy in options.policies.split(","):
                for number in range(options.runs):
                    root = Path(name) / f"{policy}-{number}"
                    root.mkdir()
                    records = options.records and options.records / f"{root.name}.csv"
                    figures = compared(slurm, root, policy, records)
                    limit = limits[f"{policy}, error"]
                    busy = figures["a lease, s"] > _ROUND_S / 3
                    bad = not busy and abs(figures["error"]) > limit["most"]
                    broken += bad
                    line = ", ".join(f"{key} {value:.3g}" for key, value in figures.items())
                    verdict = "  machine too busy" if busy else "  BROKEN" if bad else ""
                    print(json.dumps({"policy": policy, **figures}) if options.json else
                          f"{policy}: {line}{verdict}", flush=True)  # fmt: skip
        finally:
            slurm.stop()
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
