"""The whole system on a real Slurm of four nodes: gangs over nodes, losses, foreign jobs."""

import asyncio
import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.live_server import TRAIN
from tests.e2e.test_live import check_result

import fairlead
from fairlead.client import Client, ServerError
from fairlead.engines import lease_dir
from fairlead.engines.base import Ended, NodeDown, NodeUp
from fairlead.engines.slurm import SlurmEngine
from fairlead.engines.slurm_commands import SlurmError
from fairlead.job import checkpoint
from fairlead.testing.engines_bench import Bench, Rig
from fairlead.testing.slurm_cluster import SlurmCluster, missing

pytestmark = pytest.mark.slow

ENGINE = "slurm:emulate,poll-s=1"

SPEEDS = "workload,gang,accelerator,placement,partner,steps_per_s,partner_steps_per_s\n" + "".join(
    f"{workload},{gang},{kind},,,{speed * (1 + gang) / 2:g},\n"
    for workload, speeds in {
        "big": {"v100": 100, "p100": 50, "k80": 20},
        "small": {"v100": 100, "p100": 90, "k80": 60},
    }.items()
    for kind, speed in speeds.items()
    for gang in (1, 2, 3)
)


@pytest.fixture(scope="module")
def slurm() -> Iterator[SlurmCluster]:
    if missing():
        pytest.skip(missing())
    root = Path(tempfile.mkdtemp(prefix="fairlead-slurm-"))  # that other users can look into
    cluster = SlurmCluster(root / "slurm")
    root.chmod(0o755)
    try:
        yield cluster.start()
    finally:
        cluster.stop()
        shutil.rmtree(root)


@pytest.fixture(autouse=True)
def conf(slurm: SlurmCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("SLURM_CONF", slurm.environment["SLURM_CONF"])
    yield
    with contextlib.suppress(Exception):
        slurm.run("scancel", "--user=root")
    slurm.wait_idle()


class SlurmServer:
    """``fairlead serve --engine slurm`` in a directory of its own."""

    def __init__(self, root: Path, slurm: SlurmCluster) -> None:
        self.root, self.data, self.slurm = root, root / "data", slurm
        (root / "speeds.csv").write_text(SPEEDS)
        (root / "train.py").write_text(TRAIN)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.process: subprocess.Popen[bytes] | None = None
        self._client: Client | None = None

    def start(self, *, policy: str = "max-min", round_s: float = 6.0) -> "SlurmServer":
        command = [sys.executable, "-m", "fairlead", "serve", "--data", str(self.data)]
        command += ["--port", str(self.port), "--round", str(round_s), "--policy", policy]
        command += [
            "--speeds",
            str(self.root / "speeds.csv"),
            "--engine",
            ENGINE,
        ]
        with (self.root / "server.log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        self.until(self._answers, "the server to answer")
        return self

    def _answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.log()
        with contextlib.suppress(ServerError, FileNotFoundError):
            self.client.get("/v1/jobs")
            return True
        return False

    @property
    def client(self) -> Client:
        if self._client is None:
            token = (self.data / "admin.token").read_text()
            self._client = Client(f"http://127.0.0.1:{self.port}", token)
        return self._client

    def submit(self, name: str, steps: int, **settings: Any) -> str:
        command = [sys.executable, str(self.root / "train.py"), str(steps), str(self.root / name)]
        return str(self.client.submit(command, name=name, steps=steps, **settings)["id"])

    def is_in_state(self, job: str, state: str) -> bool:
        return bool(self.client.job(job)["state"] == state)

    def leases(self) -> dict[str, list[str]]:
        """job → nodes on which it runs now, by the lease directories."""
        found = {}
        for path in (self.data / "leases").glob("*"):
            if not (path / "exit.json").exists() and (path / "order.json").exists():
                order = lease_dir.read_order(path)
                if all((part / "members.json").exists() for part in path.glob("[0-9]*")):
                    found[order.job] = sorted({node for node, _ in order.devices})
        return found

    def until(self, holds: Callable[[], bool], what: str, patience_s: float = 60.0) -> float:
        began = time.monotonic()
        while not holds():
            assert time.monotonic() < began + patience_s, f"{what}\n{self.log()}"
            time.sleep(0.05)
        return time.monotonic() - began

    def log(self) -> str:
        return (self.root / "server.log").read_text()[-6000:]

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        if self._client is not None:
            self._client.close()
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            self.process.wait(20)


@pytest.fixture
def server(slurm: SlurmCluster, tmp_path: Path) -> Iterator[SlurmServer]:
    made = SlurmServer(tmp_path, slurm)
    try:
        yield made
    finally:
        made.stop()


@pytest.mark.parametrize("policy", ["max-min", "gandiva-fair", "hadar"])
def test_jobs_of_two_tenants_finish_exactly_gangs_over_nodes_too(
    server: SlurmServer, policy: str
) -> None:
    server.start(policy=policy)
    ids = {}
    for number in range(10):
        steps, gang = 500 + 40 * number, 3 if number % 4 == 0 else 1 + number % 2
        settings: dict[str, Any] = {"workload": ("big", "small")[number % 2], "gang": gang}
        settings["tenant"] = ("red", "blue")[number % 2]
        if number == 4:  # three devices, two on a node: over nodes or not at all
            settings["accelerators"] = ["v100"]
        ids[server.submit(f"out{number}", steps, **settings)] = (number, steps, gang)
    for job_id, (number, steps, gang) in ids.items():
        job = server.client.wait(job_id, timeout_s=120)
        assert (job["state"], job["steps_done"]) == ("finished", steps), server.log()
        for rank in range(gang):
            check_result(server.root / f"out{number}.{rank}", steps)
    orders = [lease_dir.read_order(path) for path in (server.data / "leases").iterdir()]
    assert any(len({node for node, _ in order.devices}) > 1 for order in orders)
    if policy == "max-min":
        assert sum(server.client.job(job_id)["preemptions"] for job_id in ids) > 0


def test_a_lost_node_s_gang_runs_elsewhere_soon_and_nothing_is_lost(server: SlurmServer) -> None:
    server.start(round_s=20.0)
    gang = server.submit("gang", 2500, workload="big", gang=3, accelerators=["v100", "k80"])
    server.until(lambda: gang in server.leases(), "the gang to run")
    time.sleep(3.0)
    victim = server.leases()[gang][-1]
    server.slurm.kill_node(victim)
    try:
        taken = server.until(
            lambda: gang in server.leases() and victim not in server.leases()[gang],
            "the gang to run elsewhere",
        )
        assert taken < 15.0, taken
        job = server.client.wait(gang, timeout_s=120)
        assert (job["state"], job["steps_done"]) == ("finished", 2500), server.log()
        assert job["failures"] == 0
        check_result(server.root / "gang.0", 2500)
    finally:
        server.slurm.start_node(victim)


def test_a_drained_node_is_left_with_a_checkpoint_and_used_again(server: SlurmServer) -> None:
    server.start(round_s=20.0)
    jobs = {server.submit(f"o{i}", 2000, workload="big", accelerators=["p100"]) for i in (0, 1)}
    server.until(lambda: jobs <= set(server.leases()), "the jobs to run")
    time.sleep(2.0)
    server.slurm.run("scontrol", "update", "nodename=n3", "state=drain", "reason=test")
    try:
        server.until(lambda: not server.leases(), "the jobs to leave")
        for job in jobs:
            server.until(partial(server.is_in_state, job, "queued"), "it to wait")
            assert server.client.job(job)["steps_done"] > 0
    finally:
        server.slurm.run("scontrol", "update", "nodename=n3", "state=resume")
    server.until(lambda: jobs <= set(server.leases()), "the jobs to run again")
    for job in jobs:
        assert server.client.wait(job, timeout_s=90)["steps_done"] == 2000
    assert {server.client.job(job)["failures"] for job in jobs} == {0}


def test_a_killed_server_s_leases_go_on_and_are_adopted(server: SlurmServer) -> None:
    server.start(round_s=20.0)
    ids = [server.submit(f"o{i}", 1500, workload="small", gang=1 + i) for i in range(3)]
    server.until(lambda: set(ids) <= set(server.leases()), "the jobs to run")
    before = {path.name for path in (server.data / "leases").iterdir()}
    for pause in (0.5, 2.0):
        server.kill()
        time.sleep(pause)
        server.start(round_s=20.0)
    for job_id in ids:
        job = server.client.wait(job_id, timeout_s=90)
        assert (job["state"], job["steps_done"]) == ("finished", 1500)
    leases = {path.name for path in (server.data / "leases").iterdir()}
    assert len(leases) <= 2 * len(before), "leases were started again"


def test_foreign_jobs_keep_their_devices_and_are_left_alone(server: SlurmServer) -> None:
    slurm = server.slurm
    foreign = slurm.run(
        "sbatch", "--parsable", "--job-name=theirs", "--nodelist=n3", "--gres=gpu:p100:1",
        "--output=/dev/null", "--wrap=sleep 300",
    ).strip()  # fmt: skip
    server.until(lambda: "RUNNING" in slurm.run("squeue", "-h", "-j", foreign, "-o", "%T"), "it")
    server.start()
    # The whole node is theirs as long as they hold a device of it: our job waits or goes on k80.
    mine = server.submit("mine", 300, workload="small", accelerators=["p100", "k80"])
    job = server.client.wait(mine, timeout_s=90)
    assert (job["state"], job["steps_done"]) == ("finished", 300)
    assert job["accelerators_used"] == ["k80"]
    only = server.submit("only", 200, workload="small", gang=2, accelerators=["p100"])
    time.sleep(4.0)
    assert server.client.job(only)["state"] == "queued"
    assert "RUNNING" in slurm.run("squeue", "-h", "-j", foreign, "-o", "%T")
    slurm.run("scancel", foreign)
    assert server.client.wait(only, timeout_s=90)["steps_done"] == 200


# -- the engine alone ---------------------------------------------------------------------------


def rig(slurm: SlurmCluster, root: Path, **options: Any) -> Rig:
    return Rig(
        make=lambda: SlurmEngine(root / "data", **options), root=root, cluster=slurm.cluster
    )


def test_a_silent_node_s_writer_is_refused(slurm: SlurmCluster, tmp_path: Path) -> None:
    writer = (
        "import sys, time\n"
        "from fairlead.job import checkpoint\n"
        "where, lease = sys.argv[1], 1\n"
        "for step in range(1, 400):\n"
        "    time.sleep(0.25)\n"
        "    try:\n"
        "        checkpoint.write(where, lease, step, 0, b'x')\n"
        "        checkpoint.commit(where, lease, step, 1)\n"
        "    except checkpoint.FencedError as error:\n"
        "        open(sys.argv[2], 'w').write(str(error)); break\n"
    )
    refused = tmp_path / "refused"

    async def scene() -> Ended:
        bench = Bench(rig(slurm, tmp_path), SlurmEngine(tmp_path / "data", poll_s=1.0))
        await bench.engine.adopt(())
        order = bench.order(1, [("n2", 0)])
        command = (sys.executable, "-c", writer, order.checkpoint_dir, str(refused))
        await bench.engine.launch(replace(order, command=command))
        members = tmp_path / "data/leases/1/0/members.json"
        await bench.until(members.exists, "it to run")
        await asyncio.sleep(1.5)
        found = lease_dir.read_json(members)
        assert found is not None
        # As if the node were cut off: nobody hears of its job, nobody can end it, and it goes on.
        slurm.kill_daemon("n2")
        os.kill(found["keeper"], signal.SIGSTOP)
        try:
            await bench.node(NodeDown("n2"))
            ended = await bench.ended(1)
            await bench.until(refused.exists, "the writer to be refused")
        finally:
            os.kill(found["keeper"], signal.SIGCONT)
            slurm.start_node("n2")
        assert checkpoint.latest(order.checkpoint_dir).steps == ended.steps  # type: ignore[union-attr]
        await bench.node(NodeUp("n2"), 60.0)
        await bench.close()
        return ended

    ended = asyncio.run(scene())
    assert ended.ending == "lost"
    assert (ended.steps or 0) > 0
    assert "may write" in refused.read_text()


def test_a_reservation_s_nodes_are_all_there_is(slurm: SlurmCluster, tmp_path: Path) -> None:
    slurm.run(
        "scontrol", "create", "reservation", "reservationname=ours", "starttime=now",
        "duration=60", "nodes=n1,n3", "users=root",
    )  # fmt: skip

    async def scene() -> None:
        bench = Bench(rig(slurm, tmp_path), SlurmEngine(tmp_path / "data", reservation="ours"))
        cluster = await bench.engine.inventory()
        assert [node.id for node in cluster.nodes] == ["n1", "n3"]
        await bench.engine.adopt(())
        await bench.start(1, [("n1", 0), ("n3", 0)])
        assert not [one for one in bench.seen if isinstance(one, NodeDown)]
        await bench.engine.stop(1)
        await bench.ended(1)
        await bench.close()
        # Who has no part in the reservation must not count on its nodes.
        other = Bench(rig(slurm, tmp_path), SlurmEngine(tmp_path / "other"))
        await other.engine.adopt(())
        await other.node(NodeDown("n1"))
        await other.node(NodeDown("n3"))
        await other.close()

    try:
        asyncio.run(scene())
    finally:
        slurm.run("scontrol", "delete", "reservation=ours")


def test_what_slurm_cannot_start_in_time_is_given_up(slurm: SlurmCluster, tmp_path: Path) -> None:
    async def scene() -> Ended:
        bench = Bench(rig(slurm, tmp_path), SlurmEngine(tmp_path / "data", start_within_s=2.0))
        await bench.engine.adopt(())
        foreign = slurm.run(
            "sbatch", "--parsable", "--nodelist=n4", "--gres=gpu:k80:4", "--output=/dev/null",
            "--wrap=sleep 60",
        ).strip()  # fmt: skip
        await asyncio.sleep(1.0)
        await bench.engine.launch(bench.order(1, [("n4", 0), ("n1", 0)]))
        ended = await bench.ended(1)
        slurm.run("scancel", foreign)
        assert not bench.members(1), "half a gang was started"
        await bench.close()
        return ended

    ended = asyncio.run(scene())
    assert ended.ending == "lost"
    assert "did not start" in ended.message


def test_a_tenant_s_job_runs_as_the_tenant_s_user(slurm: SlurmCluster) -> None:
    python = shutil.which("python3", path="/usr/bin:/usr/local/bin")
    if python is None:
        pytest.skip("there is no Python that other users can run")
    root = slurm.root.parent / "home"
    root.mkdir(mode=0o711)

    async def scene() -> tuple[Ended, str]:
        (root / "data").mkdir(mode=0o700)
        (root / "data/fairlead.db").write_text("secret")
        engine = SlurmEngine(root / "data", users=True, python=python)
        bench = Bench(rig(slurm, root), engine)
        await engine.adopt(())
        said = "id -un; cat ../../data/fairlead.db; touch $FAIRLEAD_CHECKPOINT_DIR/mine"
        order = bench.order(1, [("n1", 0), ("n2", 0)], tenant="nobody")
        await engine.launch(replace(order, command=("sh", "-c", said), directory="/"))
        ended = await bench.ended(1)
        with pytest.raises(SlurmError, match="was not submitted"):
            await engine.launch(bench.order(2, [("n1", 0)], tenant="no-such-user"))
        await bench.close()
        return ended, Path(order.log_dir, "1.1.log").read_text()

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(fairlead.__file__).parents[1]))
        ended, printed = asyncio.run(scene())
    assert ended.ending == "finished", ended
    assert printed.startswith("nobody\n")
    assert "secret" not in printed
    assert (root / "jobs/j1/checkpoint/mine").stat().st_uid == pwd.getpwnam("nobody").pw_uid


def test_without_the_controller_leases_go_on_and_can_be_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slurm = SlurmCluster(tmp_path / "own")  # a controller that is killed forgets what was last
    monkeypatch.setenv("SLURM_CONF", slurm.environment["SLURM_CONF"])

    async def scene() -> list[Ended]:
        bench = Bench(rig(slurm, tmp_path), SlurmEngine(tmp_path / "data"))
        await bench.engine.adopt(())
        await bench.start(1, [("n1", 0), ("n2", 0)])
        await bench.start(2, [("n3", 0)], "wait", 12.0)
        await asyncio.sleep(7.0)  # until the controller has written down what runs
        slurm.kill_daemon("slurmctld")
        stopping = asyncio.create_task(bench.engine.stop(1))
        try:
            ends = [await bench.ended(1), await bench.ended(2)]
        finally:
            slurm.start_controller()
        await stopping
        await bench.until(lambda: not slurm.run("squeue", "-h"), "the queue to be empty", 60.0)
        assert not [one for one in bench.seen if isinstance(one, NodeDown)]
        await bench.close()
        return ends

    try:
        slurm.start()
        assert [ended.ending for ended in asyncio.run(scene())] == ["left", "finished"]
    finally:
        slurm.stop()


def test_a_job_that_somebody_cancels_and_a_keeper_that_dies_are_told(
    slurm: SlurmCluster, tmp_path: Path
) -> None:
    async def scene() -> list[Ended]:
        bench = Bench(rig(slurm, tmp_path), SlurmEngine(tmp_path / "data"))
        await bench.engine.adopt(())
        await bench.start(1, [("n1", 0)])
        await bench.start(2, [("n2", 0), ("n3", 0)])
        slurm.run("scancel", "--nodelist=n1")
        killed = lease_dir.read_json(tmp_path / "data/leases/2/1/members.json")
        assert killed is not None
        os.kill(killed["keeper"], signal.SIGKILL)
        ends = [await bench.ended(1), await bench.ended(2)]
        assert bench.alive(1) + bench.alive(2) == 0
        assert not [one for one in bench.seen if isinstance(one, NodeDown)]
        await bench.close()
        return ends

    cancelled, died = asyncio.run(scene())
    assert cancelled.ending == "left"
    assert (died.ending, died.message) == ("lost", "its keeper died")
