"""Unmodified processes are suspended by the driver, and keep their place; refusals say why."""

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.local.bench import CLUSTER
from tests.e2e.local.fake_driver import FakeDriver
from tests.support.waiting import eventually

from fairlead.engines.base import Ended, LaunchOrder, Saved
from fairlead.engines.keeper import lease_dir, log_file
from fairlead.engines.keeper.suspend import driver as driver_module
from fairlead.engines.keeper.suspend.driver import uses_device
from fairlead.engines.local.engine import LocalEngine

COUNT = """import os, pathlib, signal, sys, time
if sys.argv[2] == "handler":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
user = pathlib.Path(os.environ["CUDA_FAKE_DIR"], str(os.getpid()))
for i in range(10**9):
    if not user.exists() and (sys.argv[2] != "early" or os.path.exists(sys.argv[1] + ".cuda")):
        user.write_text("0")
    print("step", i)
    new = pathlib.Path(sys.argv[1] + ".new")
    new.write_text(f"{os.getpid()} {i}")
    new.replace(sys.argv[1])
    time.sleep(0.01)
    if pathlib.Path(sys.argv[1] + ".end").exists():
        from fairlead.job.keeper.channel import announce
        announce(os.environ)
        print("attaches under lease", os.environ["FAIRLEAD_LEASE"])
        break
"""


class SuspendBench:
    """Counting programs, the fake driver and the local engine."""

    def __init__(self, root: Path, driver: FakeDriver) -> None:
        self.root, self.driver = root, driver
        self.engine = LocalEngine(root / "data", CLUSTER, offload_gib=8.0)
        (root / "count.py").write_text(COUNT)

    def order(self, lease: int, job: str, mode: str = "cuda", **more: Any) -> LaunchOrder:
        settings: dict[str, Any] = {"visible": ("GPU-1",), "grace_s": 60.0, **more}
        return LaunchOrder(
            lease=lease,
            job=job,
            command=(sys.executable, str(self.root / "count.py"), str(self.root / job), mode),
            directory=str(self.root),
            devices=(("node", 0),),
            accelerators=("v100",),
            environment=self.driver.environment,
            checkpoint_dir=str(self.root / f"{job}-checkpoint"),
            log_dir=str(self.root / "logs"),
            progress_pattern=r"step (\d+)",
            **settings,
        )

    def count(self, job: str) -> tuple[int, int]:
        """Return the process of a job, and its count."""
        try:
            pid, count = (self.root / job).read_text().split()
        except FileNotFoundError:  # not written yet
            return 0, -1
        return int(pid), int(count)

    async def ended(self, lease: int) -> Ended:
        async def wait() -> Ended:
            async for report in self.engine.reports():
                if isinstance(report, Ended) and report.lease == lease:
                    return report
            raise AssertionError

        return await asyncio.wait_for(wait(), 60.0)

    async def saved(self) -> Saved:
        """Return the next report of a process that was suspended and has ended."""
        async for report in self.engine.reports():
            if isinstance(report, Saved):
                return report
        raise AssertionError

    async def run(self, order: LaunchOrder, *, preempts: bool = True) -> Ended:
        """Run a lease until its job has counted on, then preempt it."""
        before = self.count(order.job)
        await self.engine.launch(order)

        def has_counted() -> bool:
            pid, count = self.count(order.job)
            return count > 2 and (pid != before[0] or count > before[1] + 2)

        if preempts:
            await eventually(has_counted)
            await self.engine.stop(order.lease)
        end = await self.ended(order.lease)
        await self.engine.forget([order.lease])
        return end

    def log(self, lease: int) -> str:
        return log_file.read(self.root / f"logs/{lease}.0.log", 0, 1 << 20)[1].decode()


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    made = FakeDriver(tmp_path)
    for name, value in made.environment.items():
        monkeypatch.setenv(name, value)
    return made


def test_two_unmodified_jobs_take_turns_on_a_device_without_new_processes(
    tmp_path: Path, driver: FakeDriver
) -> None:
    async def run() -> None:
        bench = SuspendBench(tmp_path, driver)
        pids: dict[str, int] = {}
        for lease in range(1, 7):
            job = "jk"[lease % 2]
            end = await bench.run(bench.order(lease, job))
            resumed = ["Restore", "Unlock"] if lease > 2 else []
            assert driver.calls() == [*resumed, "Lock", "Checkpoint"]
            assert (end.ending, end.parked, end.resumed) == ("left", True, lease > 2), end
            assert end.suspended
            pid, count = bench.count(job)
            assert pids.setdefault(job, pid) == pid
            assert end.steps == pytest.approx(count, abs=1)  # the last may not be written yet
            assert "suspended in" in bench.log(lease)
            assert ("resumed in" in bench.log(lease)) == (lease > 2)
        assert bench.engine.parked_jobs() == dict.fromkeys("jk", (("node", 0),))
        for lease in (7, 8):  # the first ends before the process uses its device
            end = await bench.run(bench.order(lease, "early", "early"))
            assert (end.suspended, end.resumed) == (True, lease == 8)
            assert driver.calls() == ([] if lease == 7 else ["Lock", "Checkpoint"])
            (tmp_path / "early.cuda").touch()
        (tmp_path / "k.end").touch()
        await bench.engine.launch(bench.order(9, "k"))
        end = await bench.ended(9)
        assert (end.ending, end.resumed) == ("finished", True)
        assert bench.count("k")[0] == pids["k"]
        assert "attaches under lease 9" in bench.log(9)
        await bench.engine.close()  # parked processes end with their server
        await _until_gone(pids["j"])

    asyncio.run(run())


async def _until_gone(pid: int) -> None:
    await eventually(lambda: lease_dir.process_start_ticks(pid) is None)


def test_a_process_that_has_opened_a_device_uses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not uses_device(os.getpid())
    monkeypatch.setattr(driver_module, "_DEVICES", os.devnull)
    with open(os.devnull):
        assert uses_device(os.getpid())


REFUSALS = {
    "fail.Checkpoint": ("cuCheckpointProcessCheckpoint returned 2 (OUT)", ["Lock", "Unlock"]),
    "MIG-1": ("the driver suspends no process on a MIG device", []),
    "handler": ("handles SIGTERM itself", []),
    "no-library": ("there is no libcuda.so.1", []),
}


def test_a_process_that_cannot_be_suspended_gets_the_stop_signal_and_a_reason(
    tmp_path: Path, driver: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        bench = SuspendBench(tmp_path, driver)
        for lease, (case, (reason, calls)) in enumerate(REFUSALS.items(), 1):
            more = {"visible": (case,)} if case.startswith("MIG") else {}
            if case.startswith("fail."):
                driver.request(case)
            if case == "no-library":
                monkeypatch.delenv("LD_LIBRARY_PATH")
            end = await bench.run(bench.order(lease, "j", case, **more))
            assert (end.ending, end.parked) == ("left", False), (case, end)
            assert end.message.startswith("switch: exit (transparent suspend: "), case
            assert reason in end.message
            assert end.message in bench.log(lease)
            assert driver.calls() == calls
            if case.startswith("fail."):
                driver.withdraw(case)
        silent = bench.order(9, "j", may_stay=False), bench.order(10, "j", visible=())
        for order in silent:
            assert (await bench.run(order)).message == ""
        await bench.engine.close()

    asyncio.run(run())


def test_a_job_starts_again_after_a_death_while_the_driver_suspends_or_resumes_it(
    tmp_path: Path, driver: FakeDriver
) -> None:
    async def run() -> None:
        bench = SuspendBench(tmp_path, driver)
        lease = 0
        for point in ("kill.Lock", "kill.Checkpoint", "kill.Restore", "fail.Restore"):
            lease += 1
            if point in ("kill.Restore", "fail.Restore"):
                assert (await bench.run(bench.order(lease, "j"))).parked
                lease += 1
            driver.request(point)
            pid = bench.count("j")[0]
            on_device = point.endswith(("Lock", "Checkpoint"))
            end = await bench.run(bench.order(lease, "j"), preempts=on_device)
            assert (end.ending, end.parked) == ("lost", False), (point, end)
            driver.withdraw(point)
            gone = bench.count("j")[0]
            assert on_device or gone == pid
            await _until_gone(gone)
        assert "cannot be resumed: cuCheckpointProcessRestore returned 2" in end.message
        lease += 1
        end = await bench.run(bench.order(lease, "j"))
        assert (end.parked, end.resumed) == (True, False)
        # The work of its process is lost with it, however it ends.
        members = lease_dir.read_members(tmp_path / f"data/leases/{lease}")
        assert members is not None
        os.kill(members.keeper, signal.SIGKILL)
        assert await bench.saved() == Saved(lease, "j", None)
        end = await bench.run(bench.order(lease + 1, "j"))
        assert (end.parked, end.resumed) == (True, False)
        await bench.engine.end_parked("j")
        assert await bench.saved() == Saved(lease + 1, "j", None)
        await eventually(lambda: not os.listdir(tmp_path / "data/leases"))
        await bench.engine.close()

    asyncio.run(run())
