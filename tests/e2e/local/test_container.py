"""Jobs in containers of a real runtime, in an image made of this machine's shell."""

import asyncio
import shutil
import subprocess
import tarfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.local.bench import Bench
from tests.e2e.support.lease_server import LeaseServer
from tests.support.waiting import eventually

from fairlead.engines.base import Ended

SCRIPT = """
trap 'echo left >> "$FAIRLEAD_CHECKPOINT_DIR/trace"; exit 0' TERM
echo "lease $FAIRLEAD_LEASE rank $FAIRLEAD_RANK of $WHO" >> "$FAIRLEAD_CHECKPOINT_DIR/trace"
sleep 60 & wait
"""


def podman(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = ["podman", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture
def image(tmp_path: Path) -> Iterator[str]:
    """An image that has a shell and its libraries; skips where podman cannot run it."""
    if shutil.which("podman") is None or shutil.which("apptainer") is not None:
        pytest.skip("needs podman, and no apptainer, which would run images instead")
    listed = subprocess.run(["ldd", "/bin/sh"], capture_output=True, text=True, check=True).stdout
    archive, name = tmp_path / "image.tar", f"localhost/fairlead-test-{uuid.uuid4().hex[:12]}:1"
    with tarfile.open(archive, "w", dereference=True) as tar:
        libraries = [word for word in listed.split() if word.startswith("/")]
        for path in ["/bin/sh", "/bin/sleep", *libraries]:
            tar.add(path)
    imported = podman("import", archive, name)
    try:
        trial = podman("run", "--rm", "--cgroups", "disabled", "--network", "host", name, "sh")
        if imported.returncode or trial.returncode:
            pytest.skip(f"podman cannot run containers here: {imported.stderr}{trial.stderr}")
        yield name
    finally:
        podman("rmi", "--force", name)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    server = LeaseServer()

    async def make() -> Bench:
        return Bench(tmp_path, server)

    yield asyncio.run(make())
    server.close()


def test_a_job_in_a_container_gets_its_directories_variables_and_signals(
    bench: Bench, image: str
) -> None:
    trace = bench.root / "j" / "trace"

    async def scene() -> tuple[Ended, Ended]:
        own = {"WHO": "ann", "SECRET": "hunter2"}
        order = bench.order(1, "sh", "-c", SCRIPT, container=image, environment=own)
        await bench.engine.launch(order)
        await eventually(
            lambda: trace.exists() or (bench.root / "data/leases/1/exit.json").exists()
        )
        await bench.engine.stop(1)
        left = await bench.ended()
        await bench.engine.launch(bench.order(2, "sh", "-c", "exit 3", container=image))
        return left, await bench.ended()

    left, failed = asyncio.run(scene())
    log = (bench.root / "logs/1.0.log").read_text()
    assert (left.ending, left.exit_codes) == ("left", (0,)), log
    assert trace.read_text() == "lease 1 rank 0 of ann\nleft\n"
    assert (failed.ending, failed.exit_codes) == ("failed", (3,))
    assert podman("ps", "--all", "--quiet", "--filter", f"ancestor={image}").stdout == ""
