"""NVIDIA's Multi-Process Service, with a fake control program."""

import asyncio
import stat
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.waiting import eventually

from fairlead.engines.base import Ended, LaunchOrder
from fairlead.engines.local.engine import LocalEngine
from fairlead.engines.local.mps import PROGRAM, MpsDaemon
from fairlead.engines.plugin import Site, engine_plugin
from fairlead.files import parse_cluster
from fairlead.model.errors import UsageError

CONTROL = """#!{python} -IS
import os, pathlib, sys
pipes = pathlib.Path(os.environ["CUDA_MPS_PIPE_DIRECTORY"])
assert pathlib.Path(os.environ["CUDA_MPS_LOG_DIRECTORY"]).is_dir()
assert pipes.stat().st_mode & 63 == 0
daemon, command = pipes / "control", "-d" if "-d" in sys.argv else sys.stdin.read().strip()
with open("{root}/commands", "a") as file: file.write(command + "\\n")
if command == "-d":
    if pathlib.Path("{root}/broken").exists(): sys.exit("no CUDA device")
    daemon.touch()
elif not daemon.exists(): sys.exit("Cannot find MPS control daemon process")
elif command == "quit": daemon.unlink()
"""


@pytest.fixture
def root(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yield a directory with a name short enough for sockets; its fake program is in PATH."""
    with tempfile.TemporaryDirectory(prefix="mps-") as name:
        program = Path(name, "bin", PROGRAM)
        program.parent.mkdir()
        program.write_text(CONTROL.format(python=sys.executable, root=name))
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
        yield Path(name)


def commands(root: Path) -> list[str]:
    return (root / "commands").read_text().split()


def order_of(root: Path, *command: str) -> LaunchOrder:
    """Return the order of a job's lease."""
    return LaunchOrder(
        lease=0,
        job="j",
        tenant="t",
        command=command,
        directory=str(root),
        environment={},
        devices=(("v100-0", 0),),
        accelerators=("v100",),
        checkpoint_dir=str(root / "jobs/j/checkpoint"),
        log_dir=str(root / "jobs/j/logs"),
        total_steps=None,
        grace_s=1.0,
    )


async def job_of(engine: LocalEngine, root: Path, *command: str) -> Ended:
    """Run a job to its end."""
    await engine.launch(order_of(root, *command))
    async for report in engine.reports():
        if isinstance(report, Ended):
            return report
    raise AssertionError


def test_jobs_find_the_daemon_which_ends_with_the_server(root: Path) -> None:
    async def scene() -> None:
        engine = LocalEngine(root, parse_cluster("v100=1"), mps=MpsDaemon(root))
        await engine.adopt(())
        ended = await job_of(
            engine, root, "/bin/sh", "-c", "test -e $CUDA_MPS_PIPE_DIRECTORY/control"
        )
        assert ended.ending == "finished", ended
        await engine.close()

    asyncio.run(scene())
    assert commands(root) == ["get_server_list", "-d", "quit"]


@pytest.mark.parametrize("is_stopped", [True, False])
def test_a_server_waits_for_stopped_jobs_and_leaves_the_daemon_to_others(
    root: Path, is_stopped: bool
) -> None:
    async def scene() -> None:
        engine = LocalEngine(root, parse_cluster("v100=1"), mps=MpsDaemon(root))
        await engine.adopt(())
        await engine.launch(order_of(root, "/bin/sh", "-c", "touch ran; exec sleep 60"))
        await eventually((root / "ran").exists)
        if is_stopped:
            await engine.stop(0)
        await engine.close()
        keepers = LocalEngine(root, parse_cluster("v100=1"))
        await keepers.adopt([0])
        assert bool(await keepers.running()) != is_stopped
        await keepers.kill(0)
        await eventually(lambda: not keepers._pidfds)
        await keepers.close()

    asyncio.run(scene())
    assert commands(root) == ["get_server_list", "-d", *["quit"][: int(is_stopped)]]


def test_a_daemon_that_jobs_still_use_is_left_to_the_next_server(root: Path) -> None:
    daemon = MpsDaemon(root)
    daemon.start()
    daemon.start()
    assert commands(root) == ["get_server_list", "-d", "get_server_list"]


def test_a_daemon_that_cannot_start_is_refused_with_its_reason(root: Path) -> None:
    (root / "broken").touch()
    with pytest.raises(UsageError, match=r"engine: local:mps: .* -d: no CUDA device: expected"):
        MpsDaemon(root).start()


@pytest.mark.parametrize(
    ("spec", "emulate", "problem"),
    [
        ("local:mps", None, "no program 'nvidia-cuda-mps-control' in PATH"),
        ("local:users,mps", None, "one Unix user at a time"),
        ("local:mps", "v100=1", "the devices are emulated"),
    ],
)
def test_mps_is_refused_where_it_cannot_work(
    spec: str,
    emulate: str | None,
    problem: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    plugin, options = engine_plugin(spec)
    with pytest.raises(UsageError, match=problem):
        plugin.open(Site(data=tmp_path, emulate=emulate), options)
