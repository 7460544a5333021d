"""The Slurm engine without a server on a real Slurm, beyond the conformance suite."""

import asyncio
import os
import pwd
import shutil
import signal
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from tests.e2e.slurm.server import rig
from tests.support.unix_users import importable_package

from fairlead.engines.base import DevicesTakenReport, Ended, NodeDown, NodeUp
from fairlead.engines.keeper import lease_dir
from fairlead.engines.slurm.commands import SlurmError
from fairlead.engines.slurm.engine import SlurmEngine
from fairlead.job import checkpoint
from fairlead.model.lease_outcome import logged_outcome
from fairlead.private_clusters.slurm import SlurmCluster
from fairlead.testing.engines.harness import EngineHarness

pytestmark = pytest.mark.slow

USER = "nobody"  # lang: ok


def test_a_silent_node_s_writer_is_fenced(slurm: SlurmCluster, tmp_path: Path) -> None:
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
    fenced = tmp_path / "fenced"

    async def scene() -> Ended:
        bench = EngineHarness(rig(slurm, tmp_path), SlurmEngine(tmp_path / "data", poll_s=1.0))
        await bench.engine.adopt(())
        order = bench.order(1, [("n2", 0)])
        command = (sys.executable, "-c", writer, order.checkpoint_dir, str(fenced))
        await bench.engine.launch(replace(order, command=command))
        members = tmp_path / "data/leases/1/0/members.json"
        saved_at = Path(order.checkpoint_dir, "latest.json")
        await bench.until(lambda: members.exists() and saved_at.exists(), "it to save")
        pids = lease_dir.read_json(members)
        assert pids is not None
        # As if the node were partitioned: its job is unreachable and continues to run.
        slurm.kill_daemon("n2")
        os.kill(pids["keeper"], signal.SIGSTOP)
        try:
            await bench.node(NodeDown("n2"))
            ended = await bench.ended(1)
            await bench.until(fenced.exists, "the writer to be fenced")
        finally:
            os.kill(pids["keeper"], signal.SIGCONT)
            slurm.start_node("n2")
        saved = checkpoint.latest(order.checkpoint_dir)
        assert saved is not None
        assert saved.steps == ended.steps
        await bench.node(NodeUp("n2"), 60.0)
        await bench.close()
        return ended

    ended = asyncio.run(scene())
    assert ended.ending == "lost"
    assert (ended.steps or 0) > 0
    assert "may write" in fenced.read_text()


def test_a_lease_that_waits_for_foreign_devices_is_soon_lost(
    slurm: SlurmCluster, tmp_path: Path
) -> None:
    async def scene() -> Ended:
        bench = EngineHarness(rig(slurm, tmp_path), SlurmEngine(tmp_path / "data", poll_s=0.5))
        await bench.engine.adopt(())
        await bench.until(lambda: DevicesTakenReport("n4", ()) in bench.seen, "the first poll")
        foreign = slurm.run(
            "sbatch", "--parsable", "--nodelist=n4", "--gres=gpu:k80:3", "--output=/dev/null",
            "--wrap=sleep 60",
        ).strip()  # fmt: skip
        await bench.engine.launch(bench.order(1, [("n4", 0), ("n4", 1), ("n1", 0)]))
        ended = await bench.ended(1)
        taken = [
            report
            for report in bench.seen
            if isinstance(report, DevicesTakenReport) and report.node == "n4"
        ]
        assert len(taken[-1].numbers) == 3
        assert bench.seen.index(taken[-1]) < bench.seen.index(ended), (
            "reported after the end of the lease"
        )
        assert not bench.members(1), "half a gang was started"
        slurm.run("scancel", foreign)
        free = DevicesTakenReport("n4", ())
        await bench.until(lambda: bench.seen[-1] == free, "the devices to be free")
        await bench.start(2, [("n4", number) for number in range(4)])
        await bench.close()
        return ended

    ended = asyncio.run(scene())
    # A keeper of the other node that starts only now finds the fence raised and is refused, which
    # counts as lost, too.
    assert logged_outcome(ended.ending) == "lost"
    if ended.ending == "lost":
        assert ended.message == "devices are held by others"


def test_an_engine_can_be_closed_right_after_it_stopped_a_lease(
    slurm: SlurmCluster, tmp_path: Path
) -> None:
    async def scene() -> None:
        bench = EngineHarness(rig(slurm, tmp_path), SlurmEngine(tmp_path / "data"))
        await bench.engine.adopt(())
        await bench.start(1, [("n1", 0)])
        await bench.engine.stop(1)
        async with asyncio.timeout(60.0):  # the stop has just requested a poll
            await bench.close()

    asyncio.run(scene())


def test_a_keeper_that_cannot_start_reports_the_reason(
    slurm: SlurmCluster, tmp_path: Path
) -> None:
    async def scene() -> Ended:
        engine = SlurmEngine(tmp_path / "data", python="/no/such/python", poll_s=0.5)
        bench = EngineHarness(rig(slurm, tmp_path), engine)
        await engine.adopt(())
        await engine.launch(bench.order(1, [("n1", 0)]))
        ended = await bench.ended(1)
        await engine.forget([1])
        directory = tmp_path / "data/leases/1"
        await bench.until(lambda: not directory.exists(), "its directory to be removed")
        await bench.close()
        return ended

    ended = asyncio.run(scene())
    assert ended.ending == "lost"
    assert "/no/such/python: not found" in ended.message


def test_a_lease_that_slurm_does_not_start_in_time_is_lost(
    slurm: SlurmCluster, tmp_path: Path
) -> None:
    async def scene() -> Ended:
        bench = EngineHarness(
            rig(slurm, tmp_path), SlurmEngine(tmp_path / "data", start_within_s=2.0)
        )
        await bench.engine.adopt(())
        slurm.run("scontrol", "update", "partitionname=gpu", "state=down")
        try:
            await bench.engine.launch(bench.order(1, [("n4", 0), ("n1", 0)]))
            ended = await bench.ended(1)
        finally:
            slurm.run("scontrol", "update", "partitionname=gpu", "state=up")
        assert not bench.members(1)
        await bench.close()
        return ended

    ended = asyncio.run(scene())
    assert ended.ending == "lost"
    assert ended.message == "Slurm did not start it within 2 s: PartitionDown"


def test_a_tenant_s_job_runs_as_the_tenant_s_user(slurm: SlurmCluster) -> None:
    python = shutil.which("python3", path="/usr/bin:/usr/local/bin")
    if python is None:
        pytest.skip("no Python that other users can run")
    root = Path(tempfile.mkdtemp(dir=slurm.root.parent))
    root.chmod(0o711)

    async def scene() -> tuple[Ended, str]:
        (root / "data").mkdir(mode=0o700)
        (root / "data/fairlead.db").write_text("secret")
        engine = SlurmEngine(root / "data", users=True, python=python)
        bench = EngineHarness(rig(slurm, root), engine)
        await engine.adopt(())
        script = "id -un; cat ../../data/fairlead.db; touch $FAIRLEAD_CHECKPOINT_DIR/mine"
        order = bench.order(1, [("n1", 0), ("n2", 0)], tenant=USER)
        await engine.launch(replace(order, command=("sh", "-c", script), directory="/"))
        ended = await bench.ended(1)
        with pytest.raises(SlurmError, match="was not submitted"):
            await engine.launch(bench.order(2, [("n1", 0)], tenant="no-such-user"))
        await bench.close()
        return ended, Path(order.log_dir, "1.1.log").read_text()

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(importable_package(root)))
        ended, printed = asyncio.run(scene())
    assert ended.ending == "finished", ended
    assert printed.startswith(f"{USER}\n")
    assert "secret" not in printed
    assert (root / "jobs/j1/checkpoint/mine").stat().st_uid == pwd.getpwnam(USER).pw_uid


def test_leases_continue_and_can_be_stopped_without_the_controller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A killed controller loses its latest changes.
    slurm = SlurmCluster(tmp_path / "own", patience_s=120.0)
    monkeypatch.setenv("SLURM_CONF", slurm.environment["SLURM_CONF"])

    async def scene() -> list[Ended]:
        engine = SlurmEngine(tmp_path / "data", silence_s=30.0)
        bench = EngineHarness(rig(slurm, tmp_path), engine)
        await engine.adopt(())
        await bench.start(1, [("n1", 0), ("n2", 0)])
        await bench.start(2, [("n3", 0)], "wait", 12.0)
        await asyncio.sleep(7.0)  # until the controller has saved its jobs
        slurm.kill_daemon("slurmctld")
        stopping = asyncio.create_task(bench.engine.stop(1))
        try:
            ends = [await bench.ended(1), await bench.ended(2)]
        finally:
            slurm.start_controller()
        await stopping
        await bench.until(lambda: not slurm.run("squeue", "-h"), "the queue to be empty", 60.0)
        assert not [report for report in bench.seen if isinstance(report, NodeDown)]
        await bench.close()
        return ends

    try:
        slurm.start()
        assert [ended.ending for ended in asyncio.run(scene())] == ["left", "finished"]
    finally:
        slurm.stop()


def test_cancelled_jobs_and_dead_keepers_are_reported(slurm: SlurmCluster, tmp_path: Path) -> None:
    async def scene() -> list[Ended]:
        engine = SlurmEngine(tmp_path / "data", silence_s=30.0)
        bench = EngineHarness(rig(slurm, tmp_path), engine)
        await engine.adopt(())
        await bench.start(1, [("n1", 0)])
        await bench.start(2, [("n2", 0), ("n3", 0)])
        slurm.run("scancel", "--nodelist=n1")
        killed = lease_dir.read_json(tmp_path / "data/leases/2/1/members.json")
        assert killed is not None
        os.kill(killed["keeper"], signal.SIGKILL)
        ends = [await bench.ended(1), await bench.ended(2)]
        assert bench.alive(1) + bench.alive(2) == 0
        assert not [report for report in bench.seen if isinstance(report, NodeDown)]
        await bench.close()
        return ends

    cancelled, died = asyncio.run(scene())
    assert cancelled.ending == "left"
    assert (died.ending, died.message) == ("lost", "keeper died")


def test_a_private_slurm_whose_daemons_died_serves_the_next_test(slurm: SlurmCluster) -> None:
    for name in ("slurmctld", "n1"):
        slurm.kill_daemon(name)
    slurm.clear()
    assert slurm.run("srun", "--nodelist=n1", "--job-name=next", "echo", "ran").strip() == "ran"
