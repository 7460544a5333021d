"""Train one of the models, under Fairlead or alone.

    python -m benchmarks.physical.train MODEL --batch-size N --steps N

The lines that use ``run`` are all that Fairlead needs.
"""

import argparse

import torch
from benchmarks.physical.workloads import MODELS, build, workload_name

from fairlead import job

_REPORT_EVERY = 20
"""steps between two reports of the loss, each of which waits for the device"""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("--batch-size", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    options = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    training = build(workload_name(options.model, options.batch_size), device)
    run = job.attach()
    run.register(**training.parts)
    for i in run.steps(range(options.steps)):
        loss = training.step()
        if i % _REPORT_EVERY == 0:
            run.report(loss=loss.item())


if __name__ == "__main__":
    main()
