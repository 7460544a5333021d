"""Cost of preemption by offload and of lease renewal, for each of the models.

    python -m benchmarks.physical.overhead --out OVERHEAD.json [--accelerator h200] [--seconds 300]

The models, each at its second batch size, take turns on one device in short rounds under
``fairlead serve``. Their processes stay in host memory meanwhile. The cost of a preemption is the
time in which the device makes no step, from the last step of one model to the first of the next
one, and by which the first steps take longer than later ones. Its share of a round is the
overhead. Renewals run in a thread, whose CPU time bounds their cost. The library also takes time
between two steps of a lease. A missing model or a broken limit makes the exit status 1.
"""

import argparse
import itertools
import json
import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, median
from typing import NamedTuple

from benchmarks.physical.experiment import Settings, cancel_all, server

from fairlead.engines.local.gpus.inventory import find_gpus
from fairlead.files import parse_cluster

LIMITS = {15.0: 0.02, 60.0: 0.005}
"""seconds of a round → greatest overhead of a preemption in every round"""
MAX_RENEWAL = 0.001
"""greatest overhead of renewals"""
_RENEWALS_PER_ROUND, _MAX_RENEWAL_S = 8, 5.0
"""renewals of a lease in a round, and the longest time between two"""
_MIN_STEPS = 8
"""steps of a lease whose speed is known well enough"""


class Step(NamedTuple):
    """Line of a trace, in seconds."""

    began_at: float
    ended_at: float
    written_at: float
    """time at which the line of the step before had been written"""
    renewal_cpu_s: float
    renewals: float


@dataclass(frozen=True, slots=True)
class Turn:
    """Steps of one model without another's between them."""

    model: str
    steps: Sequence[Step]

    @property
    def slow_s(self) -> float:
        """Time by which the first half of the steps takes longer than the second."""
        half = len(self.steps) // 2
        first = self.steps[half].began_at - self.steps[0].began_at
        rest = self.steps[-1].began_at - self.steps[half].began_at
        return first - half * rest / (len(self.steps) - 1 - half)


@dataclass(frozen=True, slots=True)
class Overhead:
    """Costs of one model; seconds are means over its turns."""

    model: str
    turns: int
    steps_per_s: float
    idle_s: float
    """median of the time without a step before its turn"""
    slow_s: float
    """median of the time that its first steps take longer than later ones"""
    renewal_s: float
    """CPU time of one renewal"""
    library_share: float
    """part of the time that the library takes between two steps"""

    @property
    def preemption_s(self) -> float:
        """Time lost by one preemption."""
        return self.idle_s + max(self.slow_s, 0.0)

    def preemption(self, round_s: float) -> float:
        """Return the part of a round that a preemption costs."""
        return self.preemption_s / round_s

    def renewal(self, round_s: float) -> float:
        """Return the part of a round that renewals cost at most."""
        return self.renewal_s / min(round_s / _RENEWALS_PER_ROUND, _MAX_RENEWAL_S)

    @property
    def within_limits(self) -> bool:
        """Whether all overheads are below their limits."""
        return all(
            self.preemption(round_s) < most and self.renewal(round_s) < MAX_RENEWAL
            for round_s, most in LIMITS.items()
        )


def read_trace(path: Path) -> list[Step]:
    """Return the steps in a trace; the last line may be incomplete."""
    text = path.read_text(encoding="ascii") if path.exists() else ""
    return [Step(*map(float, line.split())) for line in text.splitlines(keepends=True)
            if line.endswith("\n")]  # fmt: skip


def turns_of(traces: Mapping[str, Sequence[Step]]) -> list[Turn]:
    """Return the turns of all models on one device, in their order."""
    steps = sorted((step, model) for model, steps in traces.items() for step in steps)
    return [
        Turn(model, [step for step, _ in group])
        for model, group in itertools.groupby(steps, key=lambda pair: pair[1])
    ]


def overheads(traces: Mapping[str, Sequence[Step]]) -> list[Overhead]:
    """Return the costs of the models that have had at least one turn after a preemption."""
    turns, rows = turns_of(traces), []
    for model in traces:
        seen, idle_s, slow_s, speeds = False, [], [], []
        for before, turn in itertools.pairwise(turns):
            if turn.model != model:
                continue
            long = len(turn.steps) >= _MIN_STEPS
            was_parked, seen = seen or turns[0].model == model, True
            if long and was_parked:  # the first turn is a start
                idle_s.append(turn.steps[0].began_at - before.steps[-1].ended_at)
                slow_s.append(turn.slow_s)
                last = turn.steps[len(turn.steps) // 2 :]
                speeds.append((len(last) - 1) / (last[-1].began_at - last[0].began_at))
        if idle_s:
            rows.append(
                Overhead(
                    model,
                    len(idle_s),
                    fmean(speeds),
                    median(idle_s),
                    median(slow_s),
                    _renewal_s(traces[model]),
                    _library_share([turn for turn in turns if turn.model == model]),
                )
            )
    return rows


def _renewal_s(steps: Sequence[Step]) -> float:
    return steps[-1].renewal_cpu_s / max(steps[-1].renewals, 1.0)


def _library_share(turns: Sequence[Turn]) -> float:
    """Return the part of the time in which a process is between two of its steps."""
    between_s = total_s = 0.0
    for turn in turns:
        between_s += sum(step.began_at - step.written_at for step in turn.steps[1:])
        total_s += turn.steps[-1].ended_at - turn.steps[0].began_at
    return between_s / total_s


def measure(
    settings: Settings, accelerator: str, models: Mapping[str, int], seconds: float
) -> dict[str, list[Step]]:
    """Run the models in turns on one device for some seconds; return their traces."""
    program = [sys.executable, "-m", "benchmarks.physical.traced"]
    with tempfile.TemporaryDirectory() as root, server(settings) as (client, _):
        trace_of = {model: Path(root) / model for model in models}
        ids = [
            client.submit(
                [*program, model, "--batch-size", str(size), "--trace", str(trace_of[model])],
                name=model,
                workload=f"{model}-{size}",
                accelerators=[accelerator],
                environment={"OMP_NUM_THREADS": "2"},
            ).id
            for model, size in models.items()
        ]
        until = time.monotonic() + seconds
        while time.monotonic() < until and not any(client.job(each).has_ended for each in ids):
            time.sleep(1.0)
        cancel_all(client)
        return {model: read_trace(path) for model, path in trace_of.items()}


def show(rows: Sequence[Overhead], models: Sequence[str]) -> int:
    """Print a table; return 1 if a model is missing or over a limit."""
    heads = [f"{round_s:g} s" for round_s in LIMITS]
    print(f"{'model':12} {'turns':>5} {'steps/s':>8} {'idle, s':>8} {'slow, s':>8}", end="")
    print("".join(f" {'lost of ' + head:>14}" for head in heads), end="")
    print(f" {'renewal, ms':>12} {'of 15 s':>8} {'between steps':>14}")
    for row in rows:
        print(
            f"{row.model:12} {row.turns:5} {row.steps_per_s:8.1f} {row.idle_s:8.3f}"
            f" {row.slow_s:8.3f}" + "".join(f" {row.preemption(each):14.2%}" for each in LIMITS)
            + f" {1000 * row.renewal_s:12.2f} {row.renewal(15.0):8.3%} {row.library_share:14.3%}"
            + ("" if row.within_limits else "  over the limit")
        )  # fmt: skip
    missing = sorted(set(models) - {row.model for row in rows})
    if missing:
        print(f"not measured: {', '.join(missing)}")
    return int(bool(missing) or not all(row.within_limits for row in rows))


def main() -> int:
    from benchmarks.physical.workloads import MODELS  # noqa: PLC0415  # PyTorch is slow

    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--accelerator", help="default: the machine's first")
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--batch-size", type=int, help="default: the second of each model")
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--round", type=float, default=3.0, metavar="S")
    parser.add_argument("--speeds", default="h200", help="speed table")
    parser.add_argument("--emulate", help="devices to emulate instead of the machine's GPUs")
    options = parser.parse_args()
    accelerator = options.accelerator or first_accelerator(options.emulate)
    models = {
        name: options.batch_size or MODELS[name].batch_sizes[1]
        for name in options.models.split(",")
    }
    settings = Settings(
        policy="max-min",
        speeds=options.speeds,
        round_s=options.round,
        emulate=options.emulate,
    )
    traces = measure(settings, accelerator, models, options.seconds)
    rows = overheads({model: steps for model, steps in traces.items() if steps})
    record = {
        "accelerator": accelerator,
        "round_s": options.round,
        "models": models,
        "cpus": os.cpu_count(),
        "rows": [asdict(row) for row in rows],
    }
    options.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return show(rows, list(models))


def first_accelerator(emulate: str | None) -> str:
    """Return the accelerator of the first device."""
    if emulate is not None:
        return next(iter(parse_cluster(emulate).accelerators))
    gpus = find_gpus()[0]
    if not gpus:
        raise SystemExit("no GPU: expected --emulate, or a machine with one")
    return gpus[0].accelerator


if __name__ == "__main__":
    sys.exit(main())
