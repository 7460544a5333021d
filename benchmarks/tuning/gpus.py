"""One search on the machine's GPUs under one policy, with PyTorch.

    python -m benchmarks.tuning.gpus POLICY --out RUN.json [--accelerator h200-1g.18gb]

16 configurations of the 240 (trial.py) are trials of ``fairlead tune`` with strategy ``feedback``.
The number of epochs is chosen so that a trial takes ``--trial-seconds`` alone. Prints the seconds
from the first submission to the first report of several accuracies, and writes all reports. Ends
with ``--target``, or after ``--seconds`` on all devices. ``--save-digits FILE.npz`` writes
scikit-learn's digits for machines without it.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.physical.experiment import Settings, server
from benchmarks.physical.overhead import first_accelerator
from benchmarks.tuning import make_curves

import fairlead
from fairlead.client import Client
from fairlead.engines.local.gpus.inventory import find_gpus
from fairlead.files.recorded_curves import read_curves
from fairlead.tuning.report.record import SearchRecord, read_record

ACCURACIES = (0.9, 0.95, 0.96, 0.965, 0.97, 0.975, 0.98)
_QUALIFIED = 0.97
_FOLDS = 10
_ROUND_S = 5.0
_MIN_EPOCHS = 30


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of one search; times are seconds since its first submission."""

    policy: str
    accelerator: str
    devices: int
    steps_per_s: float
    """of a trial alone: epochs of one fold"""
    epochs: int
    configurations: Sequence[int]
    reason: str
    """reason for the end of the search"""
    device_hours: float
    ended_s: float
    """time of the last report"""
    trials: Sequence[dict[str, Any]]

    def found_s(self, accuracy: float) -> float | None:
        """Return when a trial first reported an accuracy; None if none did."""
        return min(
            (
                report["at"]
                for trial in self.trials
                for report in trial["reports"]
                if report["value"] >= accuracy
            ),
            default=None,
        )


def configurations(count: int) -> list[int]:
    """Return the first random order of configurations of which the recorded curves qualify one."""
    best = read_curves(make_curves.FOLDER / "digits.json.gz").values.max(axis=1)
    order, seed = np.zeros(0, dtype=np.int64), -1
    while not (best[order] >= _QUALIFIED).any():
        seed += 1
        order = np.random.default_rng(seed).permutation(len(best))[:count]
    return [int(number) for number in order]


def measured_speed(configuration: int, digits: Path, accelerator: str, *, emulated: bool) -> float:
    """Return the steps per second of a trial alone on a device."""
    gpus = () if emulated else find_gpus()[0]
    uuids = [gpu.uuid for gpu in gpus if gpu.accelerator == accelerator]
    command = [sys.executable, "-m", "benchmarks.tuning.trial", str(configuration)]
    probe = subprocess.run(
        [*command, "--digits", str(digits), "--probe"],
        env={**os.environ, "OMP_NUM_THREADS": "1"}
        | ({"CUDA_VISIBLE_DEVICES": uuids[0]} if uuids else {}),
        capture_output=True,
        text=True,
        check=False,
    )
    if probe.returncode:
        raise SystemExit(probe.stderr[-2000:])
    return float(probe.stdout)


def search(client: Client, name: str, command: Sequence[str], **settings: Any) -> SearchRecord:
    """Run a search; return its record."""
    with tempfile.TemporaryDirectory() as root:
        result = fairlead.tune(
            command,
            name=name,
            metric="accuracy",
            sampler="grid",
            strategy="feedback",
            journal=Path(root) / "search.jsonl",
            client=client,
            **settings,
        )
        return read_record(client, result)


def measure(options: argparse.Namespace, digits: Path, root: Path) -> Outcome:
    """Run the search under a policy."""
    accelerator = options.accelerator or first_accelerator(options.emulate)
    order = configurations(options.trials)
    speed = measured_speed(order[0], digits, accelerator, emulated=options.emulate is not None)
    epochs = max(round(options.trial_seconds * speed / _FOLDS), _MIN_EPOCHS)
    print(f"{accelerator}: {speed:.1f} steps/s, {epochs} epochs", flush=True)
    speeds = root / "speeds.csv"
    speeds.write_text(
        "workload,gang,accelerator,placement,partner,steps_per_s,partner_steps_per_s\n"
        f"digits,1,{accelerator},,,{speed},\n"
    )
    settings = Settings(
        policy=options.policy, speeds=str(speeds), round_s=_ROUND_S, emulate=options.emulate
    )
    with server(settings) as (client, _):
        devices = sum(node["devices"].get(accelerator, 0) for node in client.get("/v1/nodes"))
        program = [sys.executable, "-m", "benchmarks.tuning.trial", "{configuration}"]
        record = search(
            client,
            "digits",
            [*program, "--digits", str(digits), "--epochs", str(epochs)],
            space={"configuration": order},
            target=options.target,
            exclusive=1,  # a start takes long: the other devices see the other trials
            device_hours=devices * options.seconds / 3600.0,
            job={
                "directory": os.getcwd(),
                "workload": "digits",
                "steps": epochs * _FOLDS,
                "accelerators": (accelerator,),
                "environment": {"OMP_NUM_THREADS": "1"},
            },
        )
    trials = [
        {
            "configuration": trial.point["configuration"],
            "end": trial.end,
            "best": trial.best,
            "device_hours": trial.device_hours,
            "reports": [report._asdict() for report in trial.reports],
        }
        for trial in record.trials
    ]
    return Outcome(
        options.policy,
        accelerator,
        devices,
        speed,
        epochs,
        order,
        record.reason,
        record.device_hours,
        max((r.at for trial in record.trials for r in trial.reports), default=0.0),
        trials,
    )


def show(outcome: Outcome) -> int:
    """Print the times; return 1 if no trial has reported."""
    for trial in outcome.trials:
        reports, best = trial["reports"], trial["best"]
        first = f"{reports[0]['at']:6.1f}" if reports else "  none"
        print(f"{trial['configuration']:4} first report {first} s, {len(reports):3} reports,"
              f" best {best or 0.0:.4f}, {trial['end']}")  # fmt: skip
    for accuracy in ACCURACIES:
        found_s = outcome.found_s(accuracy)
        print(f"{accuracy:.3f} after {'none' if found_s is None else f'{found_s:.1f} s'}")
    seen = sum(bool(trial["reports"]) for trial in outcome.trials)
    print(
        f"{outcome.policy}: {seen} of {len(outcome.trials)} trials seen,"
        f" last report after {outcome.ended_s:.0f} s, {60 * outcome.device_hours:.1f} device min,"
        f" ended: {outcome.reason}"
    )
    return int(not seen)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("policy", nargs="?", default="gandiva")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--accelerator", help="default: the machine's first")
    parser.add_argument("--trials", type=int, default=16)
    parser.add_argument("--target", type=float, default=0.975, help="accuracy that ends it")
    parser.add_argument("--trial-seconds", type=float, default=60.0)
    parser.add_argument("--seconds", type=float, default=150.0)
    parser.add_argument("--digits", type=Path, help="file of --save-digits")
    parser.add_argument("--save-digits", type=Path)
    parser.add_argument("--emulate", help="devices to emulate instead of the machine's GPUs")
    options = parser.parse_args()
    if options.save_digits:
        _save_digits(options.save_digits)
        return 0
    if options.out is None:
        parser.error("--out: missing: expected a file")
    with tempfile.TemporaryDirectory() as root:
        digits = options.digits or Path(root) / "digits.npz"
        if not options.digits:
            _save_digits(digits)
        outcome = measure(options, digits.resolve(), Path(root))
    options.out.write_text(json.dumps(asdict(outcome), indent=1) + "\n", encoding="utf-8")
    return show(outcome)


def _save_digits(path: Path) -> None:
    samples = make_curves.digits()
    np.savez_compressed(path, inputs=samples.inputs, labels=samples.labels)


if __name__ == "__main__":
    sys.exit(main())
