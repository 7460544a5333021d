"""Attacks of real jobs on their keepers and on the local engine through the files they write."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.attacks.hostile import order

from fairlead.engines.base import Ended, Report
from fairlead.engines.keeper import lease_dir
from fairlead.engines.local.engine import LocalEngine
from fairlead.model.cluster import Cluster, Node

CLUSTER = Cluster((Node("n1", ("v100", "v100")),))
KEEPER = [sys.executable, "-m", "fairlead.engines.keeper.keeper"]


def script(root: Path, text: str) -> tuple[str, ...]:
    path = root / "job.py"
    path.write_text(text, encoding="utf-8")
    return (sys.executable, str(path))


def run_keeper(root: Path, text: str) -> Ended | None:
    """Run a job under a keeper; return the end that it reports."""
    directory = root / "leases" / "5"
    lease_dir.write_order(directory, order(root, command=script(root, text), grace_s=1.0))
    subprocess.run([*KEEPER, str(directory)], check=False, timeout=90.0)
    return lease_dir.read_ended(directory, 5)


@pytest.mark.parametrize("text", ["{", "{}", "[]", '{"lease": 5, "steps": "x", "files": []}'])
def test_a_damaged_checkpoint_fails_its_lease(tmp_path: Path, text: str) -> None:
    path = "os.environ['FAIRLEAD_CHECKPOINT_DIR'] + '/latest.json'"
    ended = run_keeper(tmp_path, f"import os; open({path}, 'w').write({text!r})")
    assert ended is not None
    assert ended.ending == "failed"
    assert "latest.json" in ended.message


@pytest.mark.parametrize("name", ["latest.json", "fence", "lock"])
def test_a_fifo_in_the_checkpoint_directory_fails_its_lease(tmp_path: Path, name: str) -> None:
    directory = tmp_path / "jobs" / "j1" / "checkpoint"
    directory.mkdir(parents=True)
    os.mkfifo(directory / name)
    ended = run_keeper(tmp_path, "")
    assert ended is not None
    assert ended.ending == "failed"
    assert name in ended.message


@pytest.mark.parametrize(
    "call", ["os.mkfifo({0})", "os.mkdir({0})", "os.symlink('/dev/zero', {0})"]
)
@pytest.mark.parametrize("name", ["exit.json", "status.0", "alive", "progress.json"])
def test_a_job_cannot_hang_its_keeper(tmp_path: Path, name: str, call: str) -> None:
    path = str(tmp_path / "leases" / "5" / name)
    remove = f"os.unlink({path!r}) if os.path.exists({path!r}) else None"
    ended = run_keeper(tmp_path, f"import os\n{remove}\n{call.format(repr(path))}")
    assert ended is not None
    assert (ended.ending, ended.exit_codes) == ("finished", (0,))


async def first_end(engine: LocalEngine, lease: int) -> Ended:
    async def wait() -> Ended:
        report: Report
        async for report in engine.reports():
            if isinstance(report, Ended) and report.lease == lease:
                return report
        raise AssertionError

    async with asyncio.timeout(90.0):
        return await wait()


@pytest.mark.parametrize("text", ["{", '{"keeper": 1, "members": [1], "started": [0]}', "[]"])
def test_a_server_starts_with_hostile_files_and_frees_the_device(
    tmp_path: Path, text: str
) -> None:
    """All files of a lease that runs no more are damaged; the next lease of another job runs."""
    directory = tmp_path / "leases" / "5"
    lease_dir.write_order(directory, order(tmp_path))
    (tmp_path / "leases" / "not a lease").mkdir()
    for name in ("exit.json", "members.json", "progress.json"):
        (directory / name).write_text(text, encoding="ascii")
    (tmp_path / "leases" / "4").mkdir()
    for name in ("exit.json", "members.json", "order.json"):
        (tmp_path / "leases" / "4" / name).write_text(text, encoding="ascii")

    async def run() -> tuple[Ended, Ended]:
        engine = LocalEngine(tmp_path, CLUSTER)
        await engine.adopt([5])
        lost = await first_end(engine, 5)
        other = order(tmp_path, 6, job="j2", checkpoint_dir=str(tmp_path / "other"))
        await engine.launch(other)
        ended = await first_end(engine, 6)
        await engine.close()
        return lost, ended

    lost, ended = asyncio.run(run())
    assert (lost.ending, ended.ending) == ("lost", "finished")


def test_a_restarted_server_signals_no_process_that_a_job_names(tmp_path: Path) -> None:
    """A job lists a bystander as its keeper: the real keeper is stopped, the bystander lives."""
    with subprocess.Popen(["sleep", "600"]) as bystander:
        directory = tmp_path / "leases" / "5"
        members = {"keeper": bystander.pid, "members": [], "started": []}
        job = f"""
import json, time
time.sleep(0.5)
open({str(directory / "members.json")!r}, "w").write(json.dumps({members!r}))
open({str(tmp_path / "ready")!r}, "w").close()
time.sleep(600)
"""
        lease_dir.write_order(directory, order(tmp_path, command=script(tmp_path, job)))
        with subprocess.Popen([*KEEPER, str(directory)], start_new_session=True) as keeper:
            until = time.monotonic() + 90.0
            while not (tmp_path / "ready").exists():
                assert time.monotonic() < until
                time.sleep(0.02)

            async def stop() -> Ended:
                engine = LocalEngine(tmp_path, CLUSTER)
                await engine.adopt([5])
                await engine.stop(5)
                ended = await first_end(engine, 5)
                await engine.close()
                return ended

            try:
                ended = asyncio.run(stop())
                assert bystander.poll() is None
            finally:
                bystander.kill()
                keeper.send_signal(signal.SIGKILL)
        assert ended.ending == "left"


def test_a_job_cannot_end_the_lease_of_another(tmp_path: Path) -> None:
    """A job writes an end with another lease's number; both leases end as they really do."""
    mine, other = tmp_path / "leases" / "5", tmp_path / "leases" / "6"
    forged = {"lease": 6, "ending": "failed", "steps": 0, "message": "forged", "exit_codes": [1]}
    write = f"open({str(mine / 'exit.json')!r}, 'w').write({json.dumps(forged)!r})"
    job = f"import os; {write}; os.kill(os.getppid(), 9)"

    async def run() -> dict[int, Ended]:
        engine = LocalEngine(tmp_path, CLUSTER)
        ends: dict[int, Ended] = {}
        sleeper = script(tmp_path, "import time; time.sleep(2)")
        await engine.launch(
            order(tmp_path, 6, job="j2", command=sleeper, checkpoint_dir=str(tmp_path / "other"))
        )
        await engine.launch(order(tmp_path, 5, command=(sys.executable, "-c", job)))
        async with asyncio.timeout(90.0):
            async for report in engine.reports():
                if isinstance(report, Ended):
                    assert report.lease not in ends
                    ends[report.lease] = report
                if len(ends) == 2:
                    break
        await engine.close()
        return ends

    ends = asyncio.run(run())
    assert (ends[5].ending, ends[5].message) == ("lost", "keeper died")
    assert ends[6].ending == "finished"
    assert other.exists()
