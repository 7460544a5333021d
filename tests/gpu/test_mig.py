"""An operator divides a real GPU into MIG devices and makes it whole again; jobs run on both."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.support.live_server import LiveServer, json_output

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(os.geteuid() != 0, reason="MIG layouts need root"),
]

LAYOUT = "3g.71gb,2g.35gb,1g.18gb,1g.18gb"
PARTS = {"h200-3g.71gb": 1, "h200-2g.35gb": 1, "h200-1g.18gb": 2}
SHOW = "import torch; print(torch.cuda.get_device_name(), torch.randn(9, device='cuda').shape)"


class GpuServer(LiveServer):
    """A server on the GPU of this machine."""

    def launch(self) -> None:
        command = [sys.executable, "-m", "fairlead", "serve", "--data", str(self.data)]
        command += ["--port", str(self.port), "--node-name", "host", "--round", "5"]
        with (self.root / "server.log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)

    def by_node(self) -> dict[str, tuple[bool, dict[str, int], int]]:
        """Return node → whether it is up, its devices, and how many are missing."""
        nodes = json_output(self, "nodes")
        return {one["id"]: (one["up"], one["devices"], one["taken"]) for one in nodes}

    def device_of_a_job(self, accelerator: str) -> str:
        """Run a job on an accelerator; return the name of the device that it saw."""
        job = self.client.submit([sys.executable, "-c", SHOW], accelerators=[accelerator])
        ended = self.client.wait(str(job["id"]), timeout_s=120.0)
        log = self.client.logs(str(job["id"]))
        assert ended["state"] == "finished", log
        return log


@pytest.fixture
def server(tmp_path: Path) -> Iterator[GpuServer]:
    made = GpuServer(tmp_path)
    made.start()
    try:
        yield made
    finally:
        made.clean_up()
        if "MIG " in subprocess.check_output(["nvidia-smi", "-L"], text=True):
            for arguments in (["mig", "-dci"], ["mig", "-dgi"], ["-mig", "0"]):
                subprocess.run(["nvidia-smi", *arguments], check=False)


def test_jobs_run_on_the_devices_of_a_gpu_that_is_divided_and_made_whole(
    server: GpuServer,
) -> None:
    whole = server.by_node()
    if whole != {"host": (True, {"h200": 1}, 0)}:
        pytest.skip("the layout is one of an H200")
    assert "H200" in server.device_of_a_job("h200")
    refused = server.cli("nodes", "mig", "host", "0", LAYOUT)
    assert refused.returncode
    assert "drain host" in refused.stderr
    assert server.cli("nodes", "drain", "host").returncode == 0
    refused = server.cli("nodes", "mig", "host", "0", "7g.141gb,1g.18gb")  # more than there is
    assert refused.returncode
    assert server.by_node() == {"host": (False, {"h200": 1}, 0)}
    divided = server.cli("nodes", "mig", "host", "0", LAYOUT)
    assert divided.returncode == 0, divided.stderr
    assert server.by_node() == {"host": (False, {"h200": 1}, 0), "host+1": (True, PARTS, 0)}
    assert server.cli("nodes", "return", "host").returncode == 0
    for accelerator in PARTS:
        assert accelerator.removeprefix("h200-") in server.device_of_a_job(accelerator)
    assert server.cli("nodes", "drain", "host+1").returncode == 0
    restored = server.cli("nodes", "mig", "host+1", "0", "none")
    assert restored.returncode == 0, restored.stderr
    assert server.by_node() == {"host": (True, {"h200": 1}, 0), "host+1": (False, PARTS, 0)}
    seen = server.device_of_a_job("h200")
    assert "H200" in seen
    assert "MIG" not in seen
