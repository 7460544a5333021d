"""A server whose disk is full ends with advice, and the next start continues."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.support.live_server import LiveServer
from tests.support.waiting import until

from fairlead.client import ServerError


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[LiveServer]:
    """A server whose data directory is a file system of a few MiB."""
    server = LiveServer(tmp_path, round_s=60.0)
    server.data.mkdir(mode=0o700)
    mount = ("mount", "-t", "tmpfs", "-o", "size=4m,mode=700", "none", str(server.data))
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("this user cannot mount")
    try:
        yield server
    finally:
        server.clean_up()
        subprocess.run(["umount", "--lazy", str(server.data)], check=True)


def test_a_server_whose_disk_is_full_ends_with_advice_and_loses_no_job(
    small_disk: LiveServer,
) -> None:
    server = small_disk.start()
    assert server.process is not None
    kept = server.client.submit(["sleep", "1000"], workload="big").id
    until(lambda: server.running_lease(kept), "the job does not start")
    ballast = server.data / "ballast"
    with pytest.raises(OSError, match="No space"):
        _fill(ballast)
    acknowledged = [kept]
    with pytest.raises(ServerError, match="free space"):
        _submit_jobs(server, acknowledged)
    assert server.process.wait(120) == 1
    log = (server.root / "server.log").read_text()
    assert "Traceback" not in log
    last = log.strip().splitlines()[-1]
    assert "disk full" in last
    assert f"free space in {server.data}, then start the server again" in last
    ballast.unlink()
    server.start()
    assert {job["id"] for job in server.client.get("/v1/jobs")} == {*acknowledged}


def _fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))


def _submit_jobs(server: LiveServer, acknowledged: list[str]) -> None:
    while len(acknowledged) < 1000:
        acknowledged.append(server.client.submit(["sleep", "1000"], name="n" * 100).id)
