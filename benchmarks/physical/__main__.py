"""The physical experiment: real jobs on real devices under one policy, against the simulator.

    python -m benchmarks.physical POLICY --out RUN.json [--by-speedup] [--emulate DEVICES]

Runs 24 training jobs of the bundled models under ``fairlead serve``, prints the times of all jobs,
then simulates the same jobs with the profiled speeds and the costs that the run measured, and
prints the errors. A broken limit makes the exit status 1.
``python -m benchmarks.physical.results RUN.json…`` repeats the simulation and draws the scatter
plot, without devices.
"""

import argparse
import sys
from pathlib import Path

from benchmarks.physical.experiment import Settings, run
from benchmarks.physical.results import show
from benchmarks.physical.scenario import planned_jobs

from fairlead.engines.local.gpus.inventory import find_gpus
from fairlead.files import parse_cluster, read_speeds


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("policy")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--speeds", default="h200", help="speed table")
    parser.add_argument("--jobs", type=int, default=24)
    parser.add_argument("--alone", type=float, nargs=2, default=(20.0, 40.0), metavar="S")
    parser.add_argument("--interarrival", type=float, default=12.0, metavar="S")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--by-speedup", action="store_true", help="tenants by speed-up")
    parser.add_argument("--round", type=float, default=15.0, metavar="S")
    parser.add_argument("--emulate", help="devices to emulate instead of the machine's GPUs")
    parser.add_argument("--timeout", type=float, default=3600.0, metavar="S")
    options = parser.parse_args()
    jobs = planned_jobs(
        read_speeds(options.speeds),
        _accelerators(options.emulate),
        count=options.jobs,
        alone_s=tuple(options.alone),
        interarrival_s=options.interarrival,
        seed=options.seed,
        by_speedup=options.by_speedup,
    )
    settings = Settings(
        policy=options.policy,
        speeds=options.speeds,
        round_s=options.round,
        emulate=options.emulate,
    )
    record = run(settings, jobs, timeout_s=options.timeout)
    record.write(options.out)
    return show(record)


def _accelerators(emulate: str | None) -> tuple[str, ...]:
    if emulate is not None:
        return tuple(parse_cluster(emulate).accelerators)
    return tuple(dict.fromkeys(gpu.accelerator for gpu in find_gpus()[0]))


if __name__ == "__main__":
    sys.exit(main())
