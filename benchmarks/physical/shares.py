"""Device time of equal jobs that take turns on fewer equal devices: six on four get 4/6 each.

    python -m benchmarks.physical.shares --out SHARES.json [--accelerator h200-1g.18gb]

Six endless jobs of one workload share the devices of one accelerator under ``fairlead serve``.
In three rounds each of them should run in two, so the device time of each is compared with its
share after every three rounds, by the leases that the server recorded. Two of three jobs on two
devices must move, which needs new processes on MIG devices: a round should be at least twice as
long as a start. A difference above 1 % after the last cycle makes the exit status 1.
"""

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.physical.experiment import Settings, cancel_all, server
from benchmarks.physical.overhead import first_accelerator

from fairlead.client import Client

MAX_ERROR = 0.01
"""greatest relative difference between a job's device time and its share"""
_ENDLESS = 10**9
_LATE_S = 2.0
"""seconds after the last round, until its leases have ended"""
_RECORDED_S = 20.0
"""seconds to wait for the records of cancelled leases"""


class Held(NamedTuple):
    """Time for which a job held a device, in seconds since the first lease."""

    began_s: float
    ended_s: float
    began: str
    """start of a process, or resume of a parked one"""


def shares_until(held: Mapping[str, Sequence[Held]], until_s: float) -> dict[str, float]:
    """Return job → part of the time until then for which it held a device."""
    return {
        job: sum(max(min(lease.ended_s, until_s) - lease.began_s, 0.0) for lease in leases)
        / until_s
        for job, leases in held.items()
    }


def worst_error(shares: Mapping[str, float], devices: int) -> float:
    """Return the greatest difference of a share to that of equal jobs, relative to the latter."""
    entitled = devices / len(shares)
    return max(abs(share / entitled - 1.0) for share in shares.values())


def measure(
    settings: Settings, accelerator: str, workload: str, *, jobs: int, rounds: int
) -> tuple[dict[str, list[Held]], int]:
    """Run the jobs for some rounds; return their leases and the number of devices."""
    model, _, batch_size = workload.rpartition("-")
    command = [sys.executable, "-m", "benchmarks.physical.train", model]
    command += ["--batch-size", batch_size, "--steps", str(_ENDLESS)]
    with server(settings) as (client, _):
        nodes = client.get("/v1/nodes")
        devices = sum(node["devices"].get(accelerator, 0) for node in nodes)
        for node in nodes:  # so that the first plan knows all jobs
            client.ask("POST", f"/v1/nodes/{node['id']}/cordon")
        ids = [
            client.submit(
                command,
                name=str(i),
                workload=workload,
                steps=_ENDLESS,
                accelerators=[accelerator],
                environment={"OMP_NUM_THREADS": "2"},
            ).id
            for i in range(jobs)
        ]
        for node in nodes:
            client.ask("POST", f"/v1/nodes/{node['id']}/return")
        until = time.monotonic() + rounds * settings.round_s + _LATE_S
        while time.monotonic() < until and not any(client.job(each).has_ended for each in ids):
            time.sleep(1.0)
        cancel_all(client)
        return _leases(client, ids), devices


def _leases(client: Client, ids: Sequence[str]) -> dict[str, list[Held]]:
    """Return the leases of jobs that have ended, once the server has recorded them all."""
    until = time.monotonic() + _RECORDED_S
    while True:
        views = {job_id: client.get(f"/v1/jobs/{job_id}/leases") for job_id in ids}
        if all(len(view["ended"]) == view["leases"] for view in views.values()):
            break
        if time.monotonic() > until:
            raise SystemExit("leases: not all have ended: expected their ends after a cancel")
        time.sleep(0.2)
    listed = {job_id: view["ended"] for job_id, view in views.items()}
    first_at = min(lease["started_at"] for leases in listed.values() for lease in leases)
    return {
        job_id: [
            Held(
                round(lease["started_at"] - first_at, 3),
                round(lease["ended_at"] - first_at, 3),
                lease["began"],
            )
            for lease in leases
        ]
        for job_id, leases in listed.items()
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--accelerator", help="default: the machine's first")
    parser.add_argument("--workload", default="vit-32")
    parser.add_argument("--jobs", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--round", type=float, default=30.0, metavar="S")
    parser.add_argument("--policy", default="max-min")
    parser.add_argument("--speeds", default="h200", help="speed table")
    parser.add_argument("--emulate", help="devices to emulate instead of the machine's GPUs")
    options = parser.parse_args()
    settings = Settings(
        policy=options.policy,
        speeds=options.speeds,
        round_s=options.round,
        emulate=options.emulate,
    )
    accelerator = options.accelerator or first_accelerator(options.emulate)
    held, devices = measure(
        settings, accelerator, options.workload, jobs=options.jobs, rounds=options.rounds
    )
    record = {
        "accelerator": accelerator,
        "devices": devices,
        "workload": options.workload,
        "policy": options.policy,
        "round_s": options.round,
        "rounds": options.rounds,
        "leases": held,
    }
    options.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return show(held, devices, options.round, options.rounds)


def show(held: Mapping[str, Sequence[Held]], devices: int, round_s: float, rounds: int) -> int:
    """Print the shares after every three rounds; return 1 if the last ones are wrong."""
    error = 1.0
    for done in range(3, rounds + 1, 3):
        shares = shares_until(held, done * round_s)
        error = worst_error(shares, devices)
        print(
            f"after {done} rounds, {done * round_s:g} s: "
            + " ".join(f"{share:.4f}" for share in shares.values())
            + f" of {devices / len(shares):.4f}, at most {error:.2%} off"
        )
    for job, leases in held.items():
        print(f"{job}: " + " ".join(f"{lease.began}:{lease.ended_s - lease.began_s:.1f}"
                                    for lease in leases))  # fmt: skip
    return int(error > MAX_ERROR)


if __name__ == "__main__":
    sys.exit(main())
