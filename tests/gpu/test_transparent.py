"""Unmodified PyTorch programs take turns on one GPU: the driver suspends and resumes them.

``python -m pytest -s tests/gpu/test_transparent.py`` prints the seconds of suspends and resumes.
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.request import urlopen

import pytest
from tests.support.ports import free_port
from tests.support.waiting import until

from fairlead.client import Client
from fairlead.engines.local.gpus.nvidia_smi import list_gpus

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        any(gpu.uuid.startswith("MIG-") for gpu in list_gpus()),
        reason="the driver suspends no process on a MIG device",
    ),
]

ROUND_S, LIMIT_S = 5, 100.0
TRAIN = """import os, sys
import torch

torch.manual_seed(0)
layers = [torch.nn.Linear(4096, 4096) for _ in range(8)]
model = torch.nn.Sequential(*layers).cuda()
optimizer = torch.optim.Adam(model.parameters(), fused=True)
batch = torch.randn(64, 4096, device="cuda")
with open(sys.argv[1], "a", buffering=1) as trace:
    for step in range(10**9):
        optimizer.zero_grad()
        loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(os.getpid(), step, loss.item().hex(), file=trace)
"""
"""a program that knows nothing of Fairlead, with a state of 1.6 GB"""


@contextmanager
def serve(root: Path) -> Iterator[Client]:
    """Run a server on this machine's GPUs; yield a client of it."""
    data, port = root / "data", free_port()
    command = [sys.executable, "-m", "fairlead", "serve", "--data", str(data)]
    command += ["--port", str(port), "--policy", "max-min", "--round", str(ROUND_S)]
    command += ["--offload-memory", "32", "--create-tenants"]
    with (root / "server.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        until(lambda: process.poll() is not None or _answers(port), "the server to answer", 60.0)
        assert process.poll() is None, (root / "server.log").read_text()
        yield Client(f"http://127.0.0.1:{port}", (data / "admin.token").read_text())
    finally:
        process.terminate()
        process.wait(30)


def _answers(port: int) -> bool:
    with suppress(OSError), urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5.0):
        return True
    return False


def test_two_unmodified_jobs_take_turns_on_one_gpu_and_lose_no_step(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN, encoding="ascii")
    traces = [tmp_path / name for name in "ab"]

    def command(trace: Path) -> list[str]:
        return [sys.executable, str(tmp_path / "train.py"), str(trace)]

    with serve(tmp_path) as client:
        jobs = [str(client.submit(command(trace), preempt="yes")["id"]) for trace in traces]

        def ways(job: str) -> list[tuple[str, str]]:
            ended = client.get(f"/v1/jobs/{job}/leases")["ended"]
            return [(lease["began"], lease["left"]) for lease in ended]

        try:
            until(
                lambda: all(ways(job).count(("resume", "offload")) >= 2 for job in jobs),
                "both jobs to be suspended and resumed twice",
                LIMIT_S,
            )
        finally:
            for job in jobs:
                print(job, ways(job), client.job(job)["message"])  # noqa: T201  # the result
                print(*_seconds(client.logs(job)), sep="\n")  # noqa: T201  # the result
                client.cancel(job, force=True)
            client.wait_all(jobs, timeout_s=30.0)
    steps = [[line.split() for line in trace.read_text().splitlines()] for trace in traces]
    for made in steps:
        assert len({pid for pid, _, _ in made}) == 1  # one process, over all leases
        assert [int(step) for _, step, _ in made] == [*range(0, 20 * len(made), 20)]
    losses = [[loss for _, _, loss in made] for made in steps]
    shorter = min(map(len, losses))
    assert losses[0][:shorter] == losses[1][:shorter]


def _seconds(log: str) -> list[str]:
    return re.findall(r"fairlead: .*", log)
