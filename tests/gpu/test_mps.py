"""The MPS that ``--engine local:mps`` starts: jobs use it, over restarts of the server as well."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.support.live_server import LiveServer
from tests.support.waiting import until

from fairlead.engines.local.mps import PROGRAM

pytest.importorskip("torch")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(shutil.which(PROGRAM) is None, reason="no MPS"),
]

TRAIN = """
import torch
from fairlead import job

weights, run = torch.zeros(1024, 1024, device="cuda"), job.attach()
run.register(weights=weights)
for _ in run.steps(range(10**9)):
    weights += (weights @ weights).relu()
    torch.cuda.synchronize()
"""


class MpsServer(LiveServer):
    """A server on the GPU of this machine that starts MPS."""

    def launch(self) -> None:
        (self.root / "gpu_train.py").write_text(TRAIN)
        command = [sys.executable, "-m", "fairlead", "serve", "--data", str(self.data)]
        command += ["--port", str(self.port), "--engine", "local:mps", "--round", "5"]
        with (self.root / "server.log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)

    def mps_processes(self) -> list[str]:
        """Return the command lines of the processes of this server's MPS."""
        pipes, commands = os.fsencode(self.data.absolute() / "mps" / "pipe"), []
        for process in Path("/proc").glob("[0-9]*"):
            try:
                command = (process / "cmdline").read_bytes()
                if b"nvidia-cuda-mps" in command and pipes in (process / "environ").read_bytes():
                    commands.append(command.replace(b"\0", b" ").decode())
            except OSError:  # it has ended
                continue
        return sorted(commands)

    def steps_of(self, job: str) -> float:
        return self.client.job(job).steps_done


@pytest.fixture
def server(tmp_path: Path) -> Iterator[MpsServer]:
    made = MpsServer(tmp_path)
    made.start()
    try:
        yield made
    finally:
        made.clean_up()
        print((tmp_path / "server.log").read_text()[-2000:])  # noqa: T201  # of a failure
        for log in (made.data / "mps" / "log").glob("*.log"):
            print(log.read_text()[-2000:])  # noqa: T201  # of a failure
        subprocess.run(["pgrep", "-fa", "mps"], check=False)


def test_a_job_keeps_its_mps_over_a_restart_and_the_last_server_stops_it(
    server: MpsServer,
) -> None:
    command = [sys.executable, str(server.root / "gpu_train.py")]
    job = str(server.client.submit(command)["id"])
    until(lambda: server.steps_of(job) > 0, limit_s=90.0)
    assert len(server.mps_processes()) == 2  # the daemon, and the server that it has started
    server.kill()
    assert len(server.mps_processes()) == 2
    server.start()
    before = server.steps_of(job)
    until(lambda: server.steps_of(job) > before, limit_s=60.0)
    assert server.client.job(job)["leases"] == 1
    server.client.cancel(job, force=True)
    server.client.wait(job, timeout_s=30.0)
    server.stop()
    until(lambda: not server.mps_processes(), limit_s=30.0)
