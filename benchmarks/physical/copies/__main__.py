"""One job in copies on devices of unequal speed, against the same job alone on the fastest.

    python -m benchmarks.live.copies --write-digits DIGITS.npz    # needs scikit-learn
    python -m benchmarks.physical.copies DIGITS.npz --out COPIES.json [--seeds 5] [--steps 4500]

Trains the CNN on digits of scikit-learn under ``fairlead serve --policy hadare``. For every seed
the job runs alone on the fastest device, then in one copy for each accelerator; these are averaged
at the end of every round. Prints the accuracy on held-out digits, the time from the first start to
the end of the job, and how long the starts of copies took. An average accuracy that is lower by
more than the standard deviation of the runs alone, or less than 1.5 times their speed, makes the
exit status 1.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev

from benchmarks.physical.experiment import Settings, server

from fairlead.client import Client
from fairlead.engines.local.gpus.inventory import find_gpus
from fairlead.files import parse_cluster, read_speeds

MIN_GAIN = 1.5
"""least ratio of the time alone to that in copies"""
_LIMIT_S = 3600.0


def trained(
    client: Client, command: Sequence[str], result: Path, where: Mapping[str, object], steps: int
) -> dict[str, object]:
    """Train once; return accuracy, steps, seconds and the starts of all leases by their kind."""
    job = client.submit(
        list(command),
        directory=os.getcwd(),
        workload="cnn-256",
        steps=steps,
        environment={"OMP_NUM_THREADS": "2"},
        **where,
    )
    client.wait_all([job.id], timeout_s=_LIMIT_S)
    view = client.get(f"/v1/jobs/{job.id}")
    if view["state"] != "finished":
        raise SystemExit(f"job {job.id} {view['state']}: {client.logs(job.id)[-2000:]}")
    leases = client.get(f"/v1/jobs/{job.id}/leases")["ended"]
    starts: dict[str, list[float]] = {}
    for lease in leases:
        starts.setdefault(lease["began"], []).append(round(lease["start_s"] or 0.0, 2))
    measured: dict[str, object] = json.loads(result.read_text(encoding="utf-8"))
    return {**measured, "seconds": view["ended_at"] - view["started_at"], "starts": starts}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("digits", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=4500)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--round", type=float, default=40.0, metavar="S")
    parser.add_argument("--speeds", default="h200", help="speed table, with the workload cnn-256")
    parser.add_argument("--emulate", help="devices to emulate instead of the machine's GPUs")
    options = parser.parse_args()
    accelerators = _fastest_first(options.speeds, options.emulate)
    ways: dict[str, Mapping[str, object]] = {
        "alone": {"accelerators": accelerators[:1]},
        "copies": {"max_copies": len(accelerators)},
    }
    runs: dict[str, list[dict[str, object]]] = {name: [] for name in ways}
    settings = Settings(
        policy="hadare:restart-s=10",
        speeds=options.speeds,
        round_s=options.round,
        emulate=options.emulate,
    )
    with server(settings) as (client, data):
        for seed in range(options.first_seed, options.first_seed + options.seeds):
            for name, where in ways.items():
                result = data.parent / f"{seed}-{name}.json"
                command = [sys.executable, "-m", "benchmarks.physical.copies.digits"]
                command += [str(options.digits.resolve()), str(result), "--seed", str(seed)]
                command += ["--batch-size", str(options.batch_size)]
                runs[name].append(trained(client, command, result, where, options.steps))
                print(f"seed {seed}, {name}: {runs[name][-1]}", flush=True)
                options.out.write_text(json.dumps(runs, indent=1) + "\n", encoding="utf-8")
                time.sleep(1.0)  # the devices are idle again
    return _show(runs)


def _fastest_first(speeds: str, emulate: str | None) -> list[str]:
    """Return the accelerators of the devices, the fastest first."""
    if emulate is None:
        names = {gpu.accelerator for gpu in find_gpus()[0]}
    else:
        names = {*parse_cluster(emulate).accelerators}
    table = read_speeds(speeds)
    return sorted(names, key=lambda name: -(table.listed_speed("cnn-256", 1, name) or 0.0))


def _show(runs: Mapping[str, Sequence[Mapping[str, object]]]) -> int:
    """Print means over the seeds; return 1 if a limit is broken."""
    accuracy, seconds, spread = {}, {}, {}
    for name, each in runs.items():
        values = [float(str(run["accuracy"])) for run in each]
        accuracy[name], spread[name] = fmean(values), stdev(values) if len(values) > 1 else 0.0
        seconds[name] = fmean(float(str(run["seconds"])) for run in each)
        print(f"{name}: accuracy {accuracy[name]:.4f} ({spread[name]:.4f}), {seconds[name]:.1f} s")
    gain = seconds["alone"] / seconds["copies"]
    print(f"copies are {gain:.2f} times as fast")
    is_accurate = accuracy["copies"] >= accuracy["alone"] - spread["alone"]
    return 0 if is_accurate and gain >= MIN_GAIN else 1


if __name__ == "__main__":
    sys.exit(main())
