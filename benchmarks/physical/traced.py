"""Train one of the models, and write the times of all steps to a file.

    python -m benchmarks.physical.traced MODEL --batch-size N --trace FILE

A line has the seconds at which a step began and ended on the device, those at which the line
before was written, and the CPU seconds and the number of renewals of leases so far.
"""

import argparse
import time
from pathlib import Path
from unittest.mock import patch

import torch
from benchmarks.physical.workloads import MODELS, build, workload_name

from fairlead import job
from fairlead.job import leased_run
from fairlead.job.lease import Lease

_ENDLESS = 10**9


class MeasuredLease(Lease):
    """A lease that counts its renewals and their CPU time."""

    renewals = 0
    cpu_s = 0.0

    def _renew_once(self) -> float:
        began_s = time.thread_time()
        try:
            return super()._renew_once()
        finally:
            MeasuredLease.cpu_s += time.thread_time() - began_s
            MeasuredLease.renewals += 1


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("--batch-size", type=int, required=True)
    parser.add_argument("--trace", type=Path, required=True)
    options = parser.parse_args()
    on_gpu = torch.cuda.is_available()
    training = build(workload_name(options.model, options.batch_size), "cuda" if on_gpu else "cpu")
    with (
        patch.object(leased_run, "Lease", MeasuredLease),
        options.trace.open("a", encoding="ascii", buffering=1) as trace,
    ):
        run = job.attach()
        run.register(**training.parts)
        written_at = time.monotonic()
        for _ in run.steps(range(_ENDLESS)):
            began_at = time.monotonic()
            training.step()
            if on_gpu:
                torch.cuda.synchronize()
            ended_at = time.monotonic()
            renewals = f"{MeasuredLease.cpu_s} {MeasuredLease.renewals}"
            trace.write(f"{began_at} {ended_at} {written_at} {renewals}\n")
            written_at = time.monotonic()


if __name__ == "__main__":
    main()
