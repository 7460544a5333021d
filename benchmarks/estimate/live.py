"""A live server without a table: ten jobs of unknown scripts on two emulated accelerators.

The server starts with data sheets alone. Three rounds after all jobs have begun to train, its
believed speeds are compared with the emulated ones, and the jobs' speeds under its shares with
those under the shares of a server that has the table.
"""

import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
from benchmarks.estimate.completion import Figure
from benchmarks.rehearsal import Server

from fairlead.files import read_speeds
from fairlead.files.instance import parse_instance
from fairlead.files.parsing.text import SourceText
from fairlead.model.arrays import FloatArray
from fairlead.model.instance import Instance, InstanceJob
from fairlead.model.snapshot import snapshot_of
from fairlead.model.speeds.table import SpeedTable
from fairlead.policies.max_min import MaxMin
from fairlead.store import Store

ROUNDS = 3
_ROUND_S = 10.0
_LIMIT_S = 300.0
_RATES = {"a": (40.0, 10.0), "b": (30.0, 20.0), "c": (20.0, 12.0), "d": (20.0, 10.0)}
"""model → true steps per second on a V100 and on a K80"""
_SCRIPT = """
from fairlead import job
for _ in job.attach().steps(range(1_000_000)):
    pass
"""


def learnt_live() -> Iterator[Figure]:
    """Yield the largest errors of speeds and shares after three rounds, and of a liar's speed."""
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        truth = _write_inputs(root)
        options = ["--emulate", "v100=6,k80=5", "--speeds", "guess", "--round", str(_ROUND_S)]
        server = Server(root, [*options, "--emulated-speeds", str(root / "truth.csv")])
        try:
            yield from _figures(server, root, truth)
        finally:
            try:
                _end_jobs(server)
            finally:
                server.stop()


def _write_inputs(root: Path) -> SpeedTable:
    (root / "train.py").write_text(_SCRIPT)
    rows = [
        f"{root.name}/train.py --model {model},1,{name},{speed}\n"
        for model, rates in _RATES.items()
        for name, speed in zip(("v100", "k80"), rates, strict=True)
    ]
    (root / "truth.csv").write_text("workload,gang,accelerator,steps_per_s\n" + "".join(rows))
    return read_speeds(root / "truth.csv")


def _figures(server: Server, root: Path, truth: SpeedTable) -> Iterator[Figure]:
    command = [sys.executable, str(root / "train.py"), "--model"]
    for model in "abcabcabca":
        server.client.submit([*command, model], directory=str(root))
    lie = {"v100": 2.0 * _RATES["d"][0]}
    server.client.submit([*command, "d"], directory=str(root), tenant="liar", speeds=lie)
    jobs = len("abcabcabca") + 1
    _wait(lambda: sum(job["steps_done"] > 0 for job in server.client.get("/v1/jobs")) == jobs)
    last = ended_rounds(server.data) + ROUNDS
    _wait(lambda: ended_rounds(server.data) >= last)
    errors = speed_errors(server.client.get("/v1/speeds"), truth)
    case = f"live, ten unknown scripts, after {ROUNDS} rounds"
    yield Figure(f"{case}, largest error of a speed", "learnt", max(errors.values()))
    body = server.client.text("GET", "/v1/instance")[1].decode()
    yield Figure(f"{case}, largest deviation of a job's speed", "learnt", deviation(body, truth))
    lied = max(error for workload, error in errors.items() if workload.endswith(" d"))
    yield Figure(f"{case}, error of a speed declared twice", "learnt", lied)


def _end_jobs(server: Server) -> None:
    """Cancel all jobs; return once their processes have ended."""
    for job in server.client.get("/v1/jobs"):
        server.client.cancel(job["id"])
    _wait(lambda: "fairlead_leases_open 0.0" in server.client.text("GET", "/metrics")[1].decode())


def _wait(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + _LIMIT_S
    while not condition():
        if time.monotonic() > until:
            sys.exit("the live server does not get on; see its log")
        time.sleep(0.2)


def ended_rounds(data: Path) -> int:
    """Return the number of rounds that have ended, by the server's event log."""
    store = Store(f"sqlite:///{data / 'fairlead.db'}")
    try:
        return sum('"is":"RoundEnd"' in event.body for event in store.load_events(0))
    finally:
        store.close()


def speed_errors(rows: list[dict[str, object]], truth: SpeedTable) -> dict[str, float]:
    """Return workload → the largest relative error of its believed speeds."""
    errors: dict[str, float] = {}
    for row in rows:
        workload, believed = str(row["workload"]), float(str(row["steps_per_s"]))
        true = truth.speed(workload, [str(row["accelerator"])])
        errors[workload] = max(abs(believed / true - 1.0), errors.get(workload, 0.0))
    return errors


def deviation(instance: str, truth: SpeedTable) -> float:
    """Return the largest relative difference of a job's true speed from that with a table.

    ``instance``: the server's active jobs with their believed speeds.
    """
    believed = parse_instance(SourceText("instance", instance))
    known = replace(believed, jobs=tuple(_with_speeds(job, truth) for job in believed.jobs))
    received, exact = _true_speeds(believed, known), _true_speeds(known, known)
    return float(np.abs(received / exact - 1.0).max())


def _with_speeds(job: InstanceJob, table: SpeedTable) -> InstanceJob:
    return replace(
        job,
        speeds={
            name: table.speed(job.workload, [name]) if speed > 0.0 else 0.0
            for name, speed in job.speeds.items()
        },
    )


def _true_speeds(believed: Instance, known: Instance) -> FloatArray:
    """Return the jobs' true speeds under the shares that the believed speeds lead to."""
    share = MaxMin().allocate(snapshot_of(believed)).share
    speeds: FloatArray = (share * snapshot_of(known).speed).sum(axis=1)
    return speeds
