"""Print recorded runs beside their simulations, and draw the completion times of all jobs.

python -m benchmarks.physical.results RUN.json... [--plot OUT.svg]
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.physical.prediction import errors_of, measured_costs, prediction_of
from benchmarks.physical.record import RunRecord, read_record
from benchmarks.physical.scatter import scatter

MAX_ERROR = 0.05
"""greatest error of average completion and makespan; published systems report 8 %"""


def show(record: RunRecord) -> int:
    """Print a run and the errors of its simulation; return 1 if they exceed the limit."""
    ended_s = prediction_of(record)
    errors = errors_of(record, ended_s)
    costs = measured_costs(lease for job in record.jobs for lease in job.leases)
    print(f"{record.policy}: {len(record.jobs)} jobs on {', '.join(record.devices)}")
    print(f"{'workload':18} {'arrival':>8} {'completion, s':>14} {'simulated':>10}  leases")
    for job, end_s in zip(record.jobs, ended_s, strict=True):
        leases = " ".join(f"{lease.accelerator}:{lease.began[:1]}" for lease in job.leases)
        print(
            f"{job.workload:18} {job.arrival_s:8.1f} {job.ended_s - job.arrival_s:14.1f}"
            f" {end_s - job.arrival_s:10.1f}  {leases}"
        )
    print(
        f"first start {costs.preload_s:.2f} s, resume {costs.resume_s:.2f} s, move"
        f" {costs.resume_s + costs.move_s:.2f} s, "
        + ("" if costs.hand_over_s is None else f"hand-over {costs.hand_over_s:.2f} s, ")
        + f"end {costs.leave_s:.2f} s"
    )
    print(
        f"average completion {record.average_completion_s:.1f} s (simulation off by"
        f" {errors.average_completion:.1%}), makespan {record.makespan_s:.1f} s"
        f" ({errors.makespan:.1%}), worst job {errors.worst_completion:.1%}"
    )
    return int(max(errors.average_completion, errors.makespan) > MAX_ERROR)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--plot", type=Path, help="SVG file to write")
    options = parser.parse_args()
    records = [read_record(path) for path in options.runs]
    broken = sum(show(record) for record in records)
    if options.plot:
        options.plot.write_text(_plot(records), encoding="utf-8")
    return int(broken > 0)


def _plot(records: Sequence[RunRecord]) -> str:
    series = {}
    for record in records:
        series[record.policy] = [
            (job.ended_s - job.arrival_s, float(end_s) - job.arrival_s)
            for job, end_s in zip(record.jobs, prediction_of(record), strict=True)
        ]
    return scatter(series)


if __name__ == "__main__":
    sys.exit(main())
