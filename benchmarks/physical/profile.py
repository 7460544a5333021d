"""Profile the bundled models on every accelerator of this machine, alone and in pairs.

    python -m benchmarks.physical.profile OUT.csv [--seconds 2] [--mps 50,25,10]

Writes a speed table with 95 % intervals. MIG devices are measured all at the same time. Pairs of
models, at their second batch size, share a device: under MPS on a whole GPU, if its daemon starts,
else by time-slicing. With ``--mps`` a whole GPU is measured at fractions of its multiprocessors
as well. A machine without GPUs has one accelerator, ``cpu``.
"""

import argparse
import contextlib
import itertools
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fairlead.cli.profile.here import devices_here
from fairlead.files.speeds.measured import MeasuredSpeed, add_speeds, check_target

_MPS = "nvidia-cuda-mps-control"


@dataclass(frozen=True, slots=True)
class Slot:
    """A device, or a part of one, under the name of its accelerator."""

    accelerator: str
    environment: Mapping[str, str]
    has_pairs: bool = True


@dataclass(frozen=True, slots=True)
class Profile:
    """Measures workloads on slots and adds their speeds to a table."""

    out: Path
    seconds: float
    alone: Sequence[str]
    paired: Sequence[str]
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def measure(self, slot: Slot) -> None:
        """Measure all workloads and pairs on one slot."""
        pairs = itertools.combinations_with_replacement(self.paired, 2) if slot.has_pairs else ()
        with WorkerProcess(slot.environment) as one:
            for workload in self.alone:
                one.ask("prepare", workload)
                self._add(slot, workload, one.ask("measure", self.seconds))
            with WorkerProcess(slot.environment) as other:
                for first, second in pairs:
                    self._measure_pair(slot, (one, other), (first, second))

    def _measure_pair(
        self, slot: Slot, workers: "tuple[WorkerProcess, WorkerProcess]", pair: tuple[str, str]
    ) -> None:
        _both(workers, "prepare", pair)
        speeds = _both(workers, "measure", (self.seconds, self.seconds))
        self._add(slot, pair[0], speeds[0], pair[1], speeds[1]["steps_per_s"])

    def _add(
        self,
        slot: Slot,
        workload: str,
        speed: Mapping[str, float],
        partner: str = "",
        partner_steps_per_s: float = 0.0,
    ) -> None:
        row = MeasuredSpeed(
            workload,
            1,
            slot.accelerator,
            **speed,
            partner=partner,
            partner_steps_per_s=partner_steps_per_s,
        )
        with self._lock:
            add_speeds(self.out, [row])
        beside = f" beside {partner}, which makes {partner_steps_per_s:.4g}" if partner else ""
        print(
            f"{slot.accelerator:14} {workload:18} {row.steps_per_s:9.4g} steps/s"
            f" ({row.low:.4g} to {row.high:.4g}){beside}",
            flush=True,
        )


class WorkerProcess:
    """A process of worker.py."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.physical.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **environment},
            text=True,
        )

    def __enter__(self) -> "WorkerProcess":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()  # the end of its input ends the process

    def send(self, command: str, argument: object) -> None:
        """Send a command."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({command: argument}) + "\n")
        self._process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        """Return the answer to the last command."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("a worker has died: see its output above")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def ask(self, command: str, argument: object) -> dict[str, Any]:
        """Send a command and return its answer."""
        self.send(command, argument)
        return self.answer()


def _both(
    workers: tuple[WorkerProcess, WorkerProcess], command: str, arguments: tuple[object, object]
) -> list[dict[str, Any]]:
    """Send a command to both workers at once; return their answers."""
    for worker, argument in zip(workers, arguments, strict=True):
        worker.send(command, argument)
    return [worker.answer() for worker in workers]


@contextlib.contextmanager
def mps_daemon() -> Iterator[dict[str, str] | None]:
    """Run the MPS daemon; yield the environment of its clients, None if it does not start."""
    with tempfile.TemporaryDirectory(prefix="fairlead-mps-") as name:
        clients = {"CUDA_MPS_PIPE_DIRECTORY": name, "CUDA_MPS_LOG_DIRECTORY": name}
        environment = {**os.environ, **clients}
        try:
            subprocess.run([_MPS, "-d"], env=environment, check=True, timeout=30)
        except (OSError, subprocess.SubprocessError) as error:
            print(f"no MPS: {error}", flush=True)
            yield None
            return
        try:
            yield clients
        finally:
            subprocess.run([_MPS], input="quit\n", text=True, env=environment, check=False)


def groups(mps: Mapping[str, str] | None, percentages: Sequence[int]) -> list[list[Slot]]:
    """Return the slots of this machine; those of one group are measured at the same time."""
    devices = devices_here(())
    visible = {
        name: {"CUDA_VISIBLE_DEVICES": uuid} if uuid else {} for name, uuid in devices.items()
    }
    if all(uuid.startswith("MIG-") for uuid in devices.values()):
        return [[Slot(name, environment) for name, environment in visible.items()]]
    result = []
    for name, environment in visible.items():
        result.append([Slot(name, {**environment, **(mps or {})})])
        for percentage in percentages if mps else ():
            fraction = {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": str(percentage)}
            part = {**environment, **(mps or {}), **fraction}
            result.append([Slot(f"{name}-mps{percentage}", part, has_pairs=False)])
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--seconds", type=float, default=2.0, help="length of one measurement")
    parser.add_argument("--mps", default="", help="percentages of a whole GPU's multiprocessors")
    parser.add_argument("--workloads", default="", help="some of them, such as cnn-64,gan-64")
    parser.add_argument("--pairs", default="", help="workloads to pair, or none")
    options = parser.parse_args()
    check_target(options.out)
    percentages = [int(part) for part in options.mps.split(",") if part]
    alone, paired = _selected(options.workloads, options.pairs)
    profile = Profile(options.out, options.seconds, alone, paired)
    with mps_daemon() if percentages else contextlib.nullcontext() as mps:
        for group in groups(mps, percentages):
            with ThreadPoolExecutor(len(group)) as pool:
                list(pool.map(profile.measure, group))
    return 0


def _selected(alone: str, paired: str) -> tuple[list[str], list[str]]:
    """Return the workloads to measure alone and those to measure in pairs."""
    from benchmarks.physical.workloads import MODELS, workload_name, workloads  # noqa: PLC0415  # PyTorch is slow

    second = [workload_name(name, model.batch_sizes[1]) for name, model in MODELS.items()]
    pairs = [] if paired == "none" else paired.split(",") if paired else second
    return alone.split(",") if alone else workloads(), pairs


if __name__ == "__main__":
    sys.exit(main())
