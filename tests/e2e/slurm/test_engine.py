"""The Slurm engine alone, on a real Slurm: what the suite of all engines does not ask for."""

import asyncio
import os
import pwd
import shutil
import signal
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from tests.e2e.slurm.server import rig

import fairlead
from fairlead.engines.base import DevicesTaken, Ended, NodeDown, NodeUp
from fairlead.engines.keeper import lease_dir
from fairlead.engines.slurm.commands import SlurmError
from fairlead.engines.slurm.engine import SlurmEngine
from fairlead.job import checkpoint
from fairlead.private_clusters.slurm import SlurmCluster
from fairlead.testing.engines.bench import Bench

pytestmark = pytest.mark.slow


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
        saved = checkpoint.latest(order.checkpoint_dir)
        assert saved is not None
        assert saved.steps == ended.steps
        await bench.node(NodeUp("n2"), 60.0)
        await bench.close()
        return ended

    ended = asyncio.run(scene())
    assert ended.ending == "lost"
    assert (ended.steps or 0) > 0
    assert "may write" in refused.read_text()


def test_what_waits_for_devices_that_others_hold_is_given_up_soon(
    slurm: SlurmCluster, tmp_path: Path
) -> None:
    async def scene() -> Ended:
        bench = Bench(rig(slurm, tmp_path), SlurmEngine(tmp_path / "data", poll_s=0.5))
        await bench.engine.adopt(())
        await bench.until(lambda: DevicesTaken("n4", ()) in bench.seen, "the first look")
        foreign = slurm.run(
            "sbatch", "--parsable", "--nodelist=n4", "--gres=gpu:k80:3", "--output=/dev/null",
            "--wrap=sleep 60",
        ).strip()  # fmt: skip
        await bench.engine.launch(bench.order(1, [("n4", 0), ("n4", 1), ("n1", 0)]))
        ended = await bench.ended(1)
        taken = [one for one in bench.seen if isinstance(one, DevicesTaken) and one.node == "n4"]
        assert len(taken[-1].numbers) == 3
        assert bench.seen.index(taken[-1]) < bench.seen.index(ended), "told too late to help"
        assert not bench.members(1), "half a gang was started"
        slurm.run("scancel", foreign)
        await bench.until(lambda: bench.seen[-1] == DevicesTaken("n4", ()), "them to be free")
        await bench.start(2, [("n4", number) for number in range(4)])
        await bench.close()
        return ended

    ended = asyncio.run(scene())
    assert (ended.ending, ended.message) == ("lost", "others hold its devices")


def test_an_engine_that_has_just_stopped_a_lease_can_be_closed(
    slurm: SlurmCluster, tmp_path: Path
) -> None:
    async def scene() -> None:
        bench = Bench(rig(slurm, tmp_path), SlurmEngine(tmp_path / "data"))
        await bench.engine.adopt(())
        await bench.start(1, [("n1", 0)])
        await bench.engine.stop(1)
        async with asyncio.timeout(10.0):  # what watches Slurm was just told to look again
            await bench.close()

    asyncio.run(scene())


def test_a_keeper_that_cannot_begin_says_why(slurm: SlurmCluster, tmp_path: Path) -> None:
    async def scene() -> Ended:
        engine = SlurmEngine(tmp_path / "data", python="/no/such/python", poll_s=0.5)
        bench = Bench(rig(slurm, tmp_path), engine)
        await engine.adopt(())
        await engine.launch(bench.order(1, [("n1", 0)]))
        ended = await bench.ended(1)
        await engine.forget([1])
        directory = tmp_path / "data/leases/1"
        await bench.until(lambda: not directory.exists(), "its directory to be cleared away")
        await bench.close()
        return ended

    ended = asyncio.run(scene())
    assert ended.ending == "lost"
    assert "/no/such/python: not found" in ended.message


def test_what_slurm_cannot_start_in_time_is_given_up(slurm: SlurmCluster, tmp_path: Path) -> None:
    async def scene() -> Ended:
        bench = Bench(rig(slurm, tmp_path), SlurmEngine(tmp_path / "data", start_within_s=2.0))
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
    assert ended.message == "Slurm did not start it in 2 s: PartitionDown"


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
        patch.setenv("PYTHONPATH", str(Path(fairlead.__file__).parents[2]))
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
