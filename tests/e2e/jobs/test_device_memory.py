"""Jobs that run out of device memory on a real server."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.support.live_server import LiveServer
from tests.support.waiting import until

pytestmark = pytest.mark.slow

_LARGE = """
import os, sys, time
if os.environ["FAIRLEAD_ACCELERATOR"] == "v100" and os.environ["FAIRLEAD_RANK"] == "1":
    print("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB.")
    sys.exit(1)
if os.environ["FAIRLEAD_ACCELERATOR"] == "v100":
    time.sleep(60)  # until it is killed for the failure of the other member
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LiveServer]:
    made = LiveServer(tmp_path, devices="v100=2,k80=2").start()
    yield made
    made.clean_up()


def test_job_that_runs_out_of_device_memory_is_retried_on_another_accelerator(
    server: LiveServer, tmp_path: Path
) -> None:
    (tmp_path / "large.py").write_text(_LARGE)
    job = server.client.submit(["python3", str(tmp_path / "large.py")], workload="big", gang=2)
    until(lambda: server.client.get("/v1/speeds/measured"), "the failure has taught nothing")
    (lesson,) = server.client.get("/v1/speeds/measured")
    assert (lesson["accelerator"], lesson["gang"], lesson["steps_per_s"]) == ("v100", 2, 0.0)
    until(lambda: server.client.job(job.id)["state"] == "finished", "it does not finish")
    assert server.client.job(job.id)["leases"] == 2
