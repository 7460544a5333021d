"""A hostile tenant on a real Ray, as far as Ray separates jobs: one cluster and one server.

Ray runs all jobs as one user, so files of others are not protected. The attacks are on the job's
own files, in every way that could end, block or fool the server: another tenant's jobs still make
exactly their steps.
"""

import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.ray.server import RayServer
from tests.e2e.support.trained_line import check_result

from fairlead.engines.keeper import lease_dir
from fairlead.private_clusters.ray import RayCluster
from fairlead.server_error import ServerError

pytestmark = pytest.mark.slow

GOOD, HOSTILE = "good", "evil"
ON_N3 = {"accelerators": ["k80"], "workload": "small"}
"""settings of jobs that run on node n3, with four devices"""


class Attack(RayServer):
    """A server for two tenants on nodes that share no directory with it."""

    def __init__(self, root: Path, ray: RayCluster) -> None:
        super().__init__(root, ray)
        self.without_shared_directory()
        self.script = Path(__file__).with_name("hostile_tenant.py")

    def good(self, name: str, steps: int, **settings: Any) -> str:
        """Submit a job of the good tenant, which trains a line."""
        return self.submit(name, steps, **{**ON_N3, "tenant": GOOD, **settings})

    def attack(self, *arguments: object, **settings: Any) -> str:
        """Submit a job of the hostile tenant."""
        command = [sys.executable, str(self.script), *map(str, arguments)]
        settings = {**ON_N3, "tenant": HOSTILE, "retries": 0, **settings}
        return str(self.client.submit(command, **settings)["id"])

    def attack_until_ready(self, name: str, *arguments: object, **settings: Any) -> str:
        """Submit a job of the hostile tenant that runs until it is stopped; wait until it does."""
        ready = self.root / f"{name}-{time.monotonic_ns()}"
        job = self.attack(name, *arguments, ready, **settings)
        self.until(ready.exists, f"{name} to be ready")
        return job

    def lease_of(self, job: str) -> int:
        """Return the lease of a running job."""
        for number, path in lease_dir.list_leases(self.data / "leases").items():
            with suppress(FileNotFoundError):
                if lease_dir.read_order(path).job == job:
                    return number
        raise AssertionError(f"{job} has no lease")

    def ends(self, *jobs: str) -> list[dict[str, Any]]:
        return [self.client.wait(job, timeout_s=240.0) for job in jobs]

    def check_good_job(self, name: str) -> None:
        """Run a job of the good tenant on the node of the attacks."""
        (done,) = self.ends(self.good(name, 200))
        assert (done["state"], done["steps_done"]) == ("finished", 200), self.log()
        assert done["failures"] == 0, self.log()
        check_result(self.root / f"{name}.0", 200)

    def kill_job(self, job: str) -> None:
        """Cancel a job by force; its device is free soon."""
        self.client.post(f"/v1/jobs/{job}/cancel")
        self.client.post(f"/v1/jobs/{job}/cancel?force=true")
        self.until(lambda: self.client.job(job)["devices"] == 0, "its device to be free")

    def check_answers(self) -> None:
        for path in ("/healthz", "/readyz"):
            assert self.client.raw("GET", path)[0] == 200, self.log()


@pytest.fixture(scope="module")
def server(ray_cluster: RayCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attack]:
    attack = Attack(tmp_path_factory.mktemp("ray"), ray_cluster)
    try:
        yield attack.start(round_s=20.0)
    finally:
        attack.stop()
        ray_cluster.clear()


@pytest.fixture(autouse=True)
def _server_answers(server: Attack) -> Iterator[None]:
    yield
    server.check_answers()


def test_files_that_a_job_leaves_harm_only_itself(server: Attack) -> None:
    """Links, FIFOs and damaged checkpoints; forged ends; a fence above all leases."""
    before = server.good("before", 600, accelerators=["v100"])
    server.until(lambda: before in server.leases(), "it to run")
    bait, token = server.root / "bait", server.data / "admin.token"
    bait.write_text("as it was")
    links = server.attack("links", bait, retries=1)
    logs = server.attack("logs", token)
    damaged = [server.attack("latest", content) for content in ("{}", "fifo", "huge")]
    forge = server.attack("forge", server.lease_of(before))
    fence = server.attack("fence", retries=2)
    first, second, *_ = server.ends(links, logs, forge)
    assert (first["state"], second["state"]) == ("failed", "finished")
    _, text = server.client.text("GET", f"/v1/jobs/{logs}/logs")
    assert token.read_bytes().strip() not in text
    with pytest.raises(ServerError, match="no output from rank 1"):
        server.client.text("GET", f"/v1/jobs/{logs}/logs?rank=1")
    for job in server.ends(*damaged):
        assert (job["state"], "latest.json" in job["message"]) == ("failed", True), job
    (fenced,) = server.ends(fence)
    assert fenced["state"] == "failed"
    assert "was never launched" in fenced["message"], fenced
    assert bait.read_text() == "as it was"
    (done,) = server.ends(before)
    assert (done["state"], done["steps_done"]) == ("finished", 600), server.log()
    assert done["failures"] == 0, server.log()  # a forged end would be one
    check_result(server.root / "before.0", 600)
    assert "exception was never retrieved" not in (server.root / "server.log").read_text()


@pytest.mark.parametrize("name", ["corrupt", "print_forever", "stubborn"])
def test_a_job_that_keeps_its_node_busy_delays_no_other(server: Attack, name: str) -> None:
    """Damaged checkpoints, endless output, and a stop signal that is ignored for an hour."""
    job = server.attack_until_ready(name, grace_s=3600.0)
    server.check_good_job(f"beside-{name}")
    assert server.client.job(job)["state"] == "running"
    server.kill_job(job)


@pytest.mark.parametrize("gone", ["part", "node", "lease", "lease, server restarts"])
def test_a_lease_whose_directory_is_removed_frees_its_devices(server: Attack, gone: str) -> None:
    """A job removes its directory on the node; the node's or the server's directory is removed."""
    job = server.attack_until_ready("delete", server.root, **ON_N3)
    lease = server.lease_of(job)
    restarts = "restarts" in gone
    if gone == "node":
        (home,) = server.nodes.glob("n3/*")
        shutil.rmtree(home / "leases")
    elif gone != "part":
        if restarts:
            server.kill()
        shutil.rmtree(server.data / f"leases/{lease}")
    if restarts:
        server.start(round_s=20.0)
        (ended,) = server.ends(job)  # retried, and its second lease ends at once
        assert (ended["state"], ended["leases"]) == ("finished", 2)
    else:
        server.kill_job(job)
    server.until(lambda: not server.ray.groups(), "its placement group to be removed")
    server.check_good_job(f"after-{gone.partition(',')[0]}-{restarts}")


def test_no_device_is_lost(server: Attack) -> None:
    """After all attacks the gangs of the other tenant use every device of the node at once."""
    end = server.root / "end"
    command = ["sh", "-c", f"until test -e {end}; do sleep 0.1; done"]
    settings = {**ON_N3, "tenant": GOOD}
    gangs = [server.client.submit(command, gang=size, **settings)["id"] for size in (3, 1)]
    server.until(lambda: sorted(server.leases()) == sorted(gangs), "both gangs to run")
    end.touch()
    for done in server.ends(*gangs):
        assert (done["state"], done["failures"]) == ("finished", 0), server.log()
