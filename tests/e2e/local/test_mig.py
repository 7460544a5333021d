"""MIG layouts by an operator's command, with a fake ``nvidia-smi``."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.support.forks import run_command
from tests.e2e.support.live_server import LiveServer

from fairlead.client import ServerError

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="MIG layouts need root")

NVIDIA_SMI = """#!{python} -IS
import pathlib, sys
layouts = [pathlib.Path("{root}", name) for name in ("gpu0", "gpu1")]
line = " ".join(sys.argv[1:])
def layout(): return layouts[int(sys.argv[sys.argv.index("-i") + 1])]
if line == "-L":
    for i, path in enumerate(layouts):
        print(f"GPU {{i}}: NVIDIA H200 (UUID: GPU-{{i}})")
        for j, profile in enumerate(path.read_text().split() if path.exists() else ()):
            print(f"  MIG {{profile}}     Device  {{j}}: (UUID: MIG-{{i}}-{{profile}}-{{j}})")
elif "-cgi" in line:
    if "7g" in line: sys.exit("Insufficient Resources")
    layout().write_text(sys.argv[sys.argv.index("-cgi") + 1].replace(",", " "))
elif "-dgi" in line: layout().unlink(missing_ok=True)
"""


class GpuServer(LiveServer):
    """A server on the GPUs that ``nvidia-smi`` lists."""

    def launch(self) -> None:
        tool = self.root / "bin/nvidia-smi"
        tool.parent.mkdir(exist_ok=True)
        tool.write_text(NVIDIA_SMI.format(python=sys.executable, root=self.root))
        tool.chmod(0o755)
        command = [sys.executable, "-m", "fairlead", "serve", "--data", str(self.data)]
        command += ["--port", str(self.port), "--node-name", "host"]
        environment = {**os.environ, "PATH": f"{tool.parent}:{os.environ['PATH']}"}
        with (self.root / "server.log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)

    def layout(self, node: str, gpu: int, profiles: str) -> str:
        """Run ``fairlead nodes mig``; return its output and error."""
        done = run_command(["nodes", "mig", node, str(gpu), profiles], self.environment)
        return done.stdout + done.stderr

    def by_node(self) -> dict[str, tuple[str, dict[str, int], int]]:
        nodes = self.client.get("/v1/nodes")
        state = {True: "up", False: "down"}
        return {one["id"]: (state[one["up"]], one["devices"], one["taken"]) for one in nodes}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[GpuServer]:
    made = GpuServer(tmp_path)
    made.start()
    yield made
    made.clean_up()


def test_an_operator_divides_an_idle_gpu_and_makes_it_whole_again(server: GpuServer) -> None:
    host = {"h200": 2}
    assert server.by_node() == {"host": ("up", host, 0)}
    assert "drain host" in server.layout("host", 0, "1g.18gb")
    server.client.post("/v1/nodes/host/drain")
    for gpu, profiles, problem in (
        (0, "half", "profiles: no MIG profile: 'half': expected profiles such as 3g.71gb"),
        (5, "1g.18gb", "gpu: GPU 5 has no device of node 'host'"),
        (0, "7g.141gb", "Insufficient Resources"),
        (0, ",".join(["1g.18gb"] * 8), "profiles: 8 MIG devices: expected at most 7"),
    ):
        assert problem in server.layout("host", gpu, profiles)
        assert server.by_node() == {"host": ("down", host, 0)}
    parts = {"h200-3g.71gb": 1, "h200-1g.18gb": 2}
    answer = server.layout("host", 0, "3g.71gb,1g.18gb,1g.18gb")
    assert "host+1: up, " in answer
    divided = {"host": ("down", host, 1), "host+1": ("up", parts, 0)}
    assert server.by_node() == divided
    server.client.post("/v1/nodes/host/return")
    assert server.by_node() == {**divided, "host": ("up", host, 1)}
    server.kill()
    server.start()  # finds the same devices
    assert server.by_node() == {**divided, "host": ("up", host, 1)}
    with pytest.raises(ServerError, match="drain host"):
        server.client.ask("POST", "/v1/nodes/host+1/mig", {"gpu": 0, "profiles": []})
    server.client.post("/v1/nodes/host+1/drain")
    server.layout("host+1", 0, "none")
    assert server.by_node() == {"host": ("up", host, 0), "host+1": ("down", parts, 0)}
    server.client.post("/v1/nodes/host+1/return")  # it has no device
    assert server.by_node()["host+1"][0] == "down"
    audited = [one for one in server.client.get("/v1/audit") if one["action"] == "mig"]
    assert [(one["subject"], one["detail"]) for one in audited][:2] == [
        ("host+1 GPU 0", "none"),
        ("host GPU 0", "3g.71gb,1g.18gb,1g.18gb"),
    ]
