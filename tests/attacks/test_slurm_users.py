"""A hostile tenant on a real Slurm with ``users``: all attacks on one cluster and one server.

Another tenant's jobs, submitted before, during and after the attacks, make exactly their steps.
"""

import os
import pwd
import shutil
import stat
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.slurm.server import SlurmServer
from tests.e2e.support.trained_line import check_result
from tests.support.two_tenants import GOOD, HOSTILE, PYTHON, two_tenants

from fairlead.client import Client
from fairlead.engines.keeper import lease_dir
from fairlead.model.cluster import Node
from fairlead.private_clusters import slurm as private_slurm
from fairlead.private_clusters.slurm import SlurmCluster
from fairlead.server_error import ServerError

pytestmark = pytest.mark.slow

NODES = (Node("n1", ("v100",) * 3, "r1"), Node("n2", ("v100",) * 3, "r1"))
SECRET = "root's own file\n"
HOLD = ("sbatch", "--parsable", "--hold", "--output=/dev/null", "--wrap=true")


class Attack(SlurmServer):
    """A server for two tenants, with a file that only root may change."""

    def __init__(self, root: Path, slurm: SlurmCluster) -> None:
        super().__init__(root, slurm)
        self.engine = f"slurm:users,emulate,poll-s=0.5,python={PYTHON}"
        self.bait = root / "bait"
        self.bait.write_text(SECRET)
        self.starts = 1
        self.ready = root / "ready"
        """directory in which attacks report that they are ready"""
        self.ready.mkdir()
        self.ready.chmod(0o777)
        self.script = root / "hostile_tenant.py"
        shutil.copy(Path(__file__).with_name("hostile_tenant.py"), self.script)

    def good(self, name: str, steps: int, **settings: Any) -> str:
        """Submit a job of the good tenant, which trains a line."""
        command = [str(PYTHON), str(self.root / "train.py"), str(steps), str(self.ready / name)]
        settings = {"workload": "big", "tenant": GOOD, "directory": "/", **settings}
        return str(self.client.submit(command, name=name, steps=steps, **settings)["id"])

    def attack(self, *arguments: object, **settings: Any) -> str:
        """Submit a job of the hostile tenant."""
        command = [str(PYTHON), str(self.script), *map(str, arguments)]
        settings = {"workload": "big", "tenant": HOSTILE, "directory": "/", **settings}
        return str(self.client.submit(command, **{"retries": 0, **settings})["id"])

    def lease_of(self, job: str) -> int:
        """Return the lease of a running job."""
        leases: list[int] = []

        def is_running() -> bool:
            for number, path in lease_dir.list_leases(self.data / "leases").items():
                with suppress(FileNotFoundError):
                    order = lease_dir.read_order(path)
                    if order.job == job and (path / "0/members.json").exists():
                        leases.append(number)
            return bool(leases)

        self.until(is_running, f"{job} to run")
        return leases[-1]

    def ends(self, *jobs: str) -> list[dict[str, Any]]:
        return [self.client.wait(job, timeout_s=240.0) for job in jobs]

    def uses(self, job: str) -> int:
        return int(self.client.job(job)["devices"])

    def check_answers(self) -> None:
        for path in ("/healthz", "/readyz"):
            began = time.monotonic()
            status, _, _ = self.client.raw("GET", path)
            assert status == 200, self.log()
            assert time.monotonic() - began < 15.0


@pytest.fixture(scope="module")
def server() -> Iterator[Attack]:
    if private_slurm.missing():
        pytest.skip(private_slurm.missing())
    with two_tenants() as (root, patch):
        slurm = SlurmCluster(root / "slurm", NODES, patience_s=120.0)
        patch.setenv("SLURM_CONF", slurm.environment["SLURM_CONF"])
        attack = Attack(root, slurm)
        try:
            slurm.start()
            yield attack.start(round_s=4.0)
        finally:
            attack.stop()
            slurm.stop()


@pytest.fixture(scope="module")
def before(server: Attack) -> str:
    """Return a job of the good tenant that runs during the attacks."""
    job = server.good("before", 3500)
    server.lease_of(job)
    return job


@pytest.fixture(autouse=True)
def _others_are_unharmed(server: Attack, before: str) -> Iterator[None]:
    """After each attack root's file is as it was, and the server answers."""
    yield
    server.check_answers()
    assert server.bait.read_text() == SECRET
    assert server.bait.stat().st_uid == 0
    assert stat.S_IMODE(server.bait.stat().st_mode) == 0o644
    job = server.client.job(before)
    assert job["state"] in ("queued", "running", "finished")
    assert job["failures"] == 0, "the attack has ended another tenant's lease"
    if server.starts == 1:  # leases may be lost while no server renews them
        ended = server.client.get(f"/v1/jobs/{before}/leases")["ended"]
        endings = {lease["ending"] for lease in ended}  # it may have been preempted
        assert endings <= {"left", "finished"}, "the attack has ended another tenant's lease"


def test_a_tenant_reads_no_file_of_others(server: Attack, before: str, tmp_path: Path) -> None:
    (tmp_path / "say.py").write_text("import os; print('code of', os.stat('say.py').st_uid)")
    settings = {"workload": "big", "tenant": GOOD, "directory": str(tmp_path)}
    job = server.client.submit([str(PYTHON), "say.py"], snapshot=True, **settings)
    assert server.ends(job.id)[0]["state"] == "finished", server.client.logs(job.id)
    assert server.client.logs(job.id) == f"code of {pwd.getpwnam(GOOD).pw_uid}\n"
    assert (server.data / "jobs" / job.id / "code" / "say.py").exists()
    lease = server.lease_of(before)
    assert (server.data / f"leases/{lease}/0/order.json").exists()
    files = [path for path in server.data.rglob("*") if path.is_file()]
    paths = [str(path) for path in files if not path.is_symlink()]
    reading = (
        "import sys\n"
        "for path in sys.stdin.read().split('\\n'):\n"
        "    try:\n"
        "        open(path, 'rb').read(1)\n"
        "        print(path)\n"
        "    except OSError: pass\n"
    )
    done = as_hostile([str(PYTHON), "-c", reading], input="\n".join(paths))
    uid = pwd.getpwnam(HOSTILE).pw_uid
    others = [path for path in done.stdout.split() if os.stat(path).st_uid != uid]
    # These two hold the number of parts and nothing.
    assert [path for path in others if Path(path).name not in ("parts", "over")] == []


def test_jobs_of_others_under_the_names_of_leases_are_not_ours(
    server: Attack, before: str
) -> None:
    """The hostile tenant uses Slurm itself, and names its jobs like a lease of another tenant."""
    name = f"{prefix(server)}{server.lease_of(before)}.0"
    others = f"{prefix(server)}0.0,{name}"  # to scancel, a list of names
    lines = (f"x\n1|{name}|PENDING|n1|gpu:v100:1|0|None", f"{name}|PENDING|n1|N/A|0|None")
    held = [as_hostile([*HOLD, f"--job-name={each}"]).stdout.strip() for each in (name, *lines)]
    orphan = as_hostile([*HOLD, f"--job-name={others}"]).stdout.strip()
    server.until(lambda: orphan not in job_ids(server), "the job without a lease to be cancelled")
    assert name in server.slurm.run("squeue", "--noheader", "--format=%j", "--states=R").split()
    server.slurm.run("scancel", "--quiet", *held)


def test_files_that_a_job_leaves_harm_only_itself(server: Attack, before: str) -> None:
    """Links, FIFOs and damaged checkpoints; forged ends; a fence above all leases."""
    token = server.data / "admin.token"
    links = server.attack("links", server.bait, retries=1)
    logs = server.attack("logs", token)
    damaged = [server.attack("latest", content) for content in ("{}", "fifo", "huge")]
    forge = server.attack("forge", server.lease_of(before))
    fence = server.attack("fence", retries=2)
    first, second, *_ = server.ends(links, logs, forge)
    assert (first["state"], first["leases"]) == ("failed", 2)
    assert second["state"] == "finished"
    with closing(client_of(server, HOSTILE)) as tenant:
        _, text = tenant.text("GET", f"/v1/jobs/{logs}/logs")
        assert token.read_bytes().strip() not in text
        with pytest.raises(ServerError, match="no output from rank 1"):
            tenant.text("GET", f"/v1/jobs/{logs}/logs?rank=1")
    for job in server.ends(*damaged):
        assert (job["state"], "latest.json" in job["message"]) == ("failed", True), job
    (fenced,) = server.ends(fence)
    assert fenced["state"] == "failed"
    assert "was never launched" in fenced["message"], fenced


def test_locks_that_a_job_holds_for_ever_block_nobody(server: Attack) -> None:
    job = server.attack("lock", server.ready / "locked", retries=1)
    server.until((server.ready / "locked").exists, "the locks to be held")
    server.check_answers()
    server.client.post(f"/v1/jobs/{job}/cancel")
    server.until(lambda: server.uses(job) == 0, "its device to be free")


def test_files_that_the_server_writes_lead_nowhere(server: Attack) -> None:
    """The job redirects all files of its keeper and ignores the stop signal for an hour."""
    assert server.process is not None
    ready = server.ready / "redirected"
    job = server.attack("redirect", server.bait, server.process.pid, ready, grace_s=3600.0)
    server.until(ready.exists, "the links to be there")
    (during,) = server.ends(server.good("during", 50))
    assert (during["state"], during["steps_done"]) == ("finished", 50)
    server.client.post(f"/v1/jobs/{job}/cancel")
    server.check_answers()
    server.client.post(f"/v1/jobs/{job}/cancel?force=true")
    server.until(lambda: server.uses(job) == 0, "its device to be free")
    assert server.client.job(job)["state"] == "cancelled"


def test_a_forced_cancellation_frees_the_devices_of_a_stubborn_job(server: Attack) -> None:
    ready = server.ready / "stubborn"
    job = server.attack("stubborn", ready, grace_s=3600.0)
    server.until(ready.exists, "it to ignore the signal")
    server.client.post(f"/v1/jobs/{job}/cancel")
    assert server.uses(job) == 1
    server.client.post(f"/v1/jobs/{job}/cancel?force=true")
    assert server.until(lambda: server.uses(job) == 0, "its device to be free") < 60.0


@pytest.mark.parametrize("restart", [False, True], ids=["server runs", "server restarts"])
def test_a_lease_whose_directory_is_removed_frees_its_devices(
    server: Attack, restart: bool
) -> None:
    known, ready = server.ready / f"known-{restart}", server.ready / f"deleted-{restart}"
    job = server.attack("delete", known, ready, retries=0)
    lease = server.lease_of(job)
    known.touch()
    server.until(ready.exists, "the job to delete its files")
    if restart:
        server.kill()
    shutil.rmtree(server.data / f"leases/{lease}")
    if restart:
        server.starts += 1
        server.start(round_s=4.0)
    (ended,) = server.ends(job)
    assert (ended["state"], ended["leases"]) == ("finished", 2), "it was not retried"
    name = f"{prefix(server)}{lease}.0"
    names = server.slurm.run("squeue", "--noheader", "--format=%j").split()
    assert name not in names, "the job of the lost lease still runs"


def test_the_other_tenant_s_jobs_make_exactly_their_steps(server: Attack, before: str) -> None:
    """After all attacks no device is lost: two gangs use all of them at the same time."""
    server.client.wait(before, timeout_s=240.0)  # it needs a device that the gangs would use
    gangs = [server.good(f"after{number}", 3000, gang=3) for number in (1, 2)]
    server.until(lambda: all(server.uses(gang) == 3 for gang in gangs), "both gangs to run", 90.0)
    for job, name, steps, size in (
        (before, "before", 3500, 1),
        (gangs[0], "after1", 3000, 3),
        (gangs[1], "after2", 3000, 3),
    ):
        done = server.client.wait(job, timeout_s=240.0)
        assert (done["state"], done["steps_done"]) == ("finished", steps), server.log()
        for rank in range(size):
            check_result(server.ready / f"{name}.{rank}", steps)
    server.until(lambda: not job_ids(server), "the queue to be empty")
    left = server.data / "leases"
    server.until(lambda: len(list(left.iterdir())) <= 1, "lease directories to be removed")


def prefix(server: Attack) -> str:
    """Return the prefix of the names of the server's Slurm jobs."""
    return f"fairlead-{(server.data / 'slurm/tag').read_text()}-"


def job_ids(server: Attack) -> list[str]:
    """Return the IDs of the jobs in Slurm's queue."""
    return server.slurm.run("squeue", "--noheader", "--format=%i").split()


def client_of(server: Attack, tenant: str) -> Client:
    """Return a client with the token of a tenant."""
    made = server.client.post("/v1/tokens", {"name": f"of-{tenant}", "tenant": tenant})
    return Client(f"http://{server.host}:{server.port}", made["token"])


def as_hostile(command: list[str], **options: Any) -> "subprocess.CompletedProcess[str]":
    """Run a command as the user of the hostile tenant, outside its jobs."""
    user = pwd.getpwnam(HOSTILE)
    return subprocess.run(
        command,
        user=user.pw_uid,
        group=user.pw_gid,
        extra_groups=[],
        cwd="/",
        env={"PATH": os.environ["PATH"], "SLURM_CONF": os.environ["SLURM_CONF"]},
        text=True,
        capture_output=True,
        check=True,
        **options,
    )
