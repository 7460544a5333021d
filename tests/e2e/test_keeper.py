"""The keeper of a gang: all of it hear the word to stop, also those that are still loading."""

import signal
import subprocess
import sys
import time
from pathlib import Path

from fairlead.engines import lease_dir
from fairlead.engines.base import Ended, Order
from fairlead.job.status import LEFT

# Rank 1 takes its time before it listens; both say that they were told.
MEMBER = f"""
import os, signal, sys, time
rank = os.environ["RANK"]
if rank == "1": time.sleep(1.5)
def leave(*_):
    open(sys.argv[1] + rank, "w").close()
    sys.exit({LEFT})
signal.signal(signal.SIGTERM, leave)
time.sleep(60)
"""


def stopped_early(root: Path, devices: int) -> tuple[Ended, float]:
    """Keep a gang that is told to stop as soon as it runs; return its end, and after what time."""
    (root / "lease").mkdir()
    (root / "member.py").write_text(MEMBER)
    order = Order(
        lease=1,
        job="j1",
        command=(sys.executable, str(root / "member.py"), str(root / "told")),
        directory=str(root),
        devices=tuple(("here", number) for number in range(devices)),
        accelerators=("v100",) * devices,
        checkpoint_dir=str(root / "checkpoint"),
        log_dir=str(root / "logs"),
    )
    lease_dir.write_order(root / "lease", order)
    command = [sys.executable, "-m", "fairlead.engines.keeper", str(root / "lease")]
    with subprocess.Popen(command) as keeper:
        until = time.monotonic() + 30.0
        while not (root / "lease" / "members.json").exists():
            assert time.monotonic() < until
            time.sleep(0.01)
        began = time.monotonic()
        keeper.send_signal(signal.SIGTERM)
        keeper.wait(60.0)
    ended = lease_dir.read_ended(root / "lease")
    assert ended is not None
    return ended, time.monotonic() - began


def test_a_member_that_still_loads_is_told_to_stop_when_it_listens(tmp_path: Path) -> None:
    ended, taken_s = stopped_early(tmp_path, 2)
    assert (ended.ending, ended.exit_codes) == ("left", (LEFT, LEFT))
    assert {path.name for path in tmp_path.glob("told*")} == {"told0", "told1"}
    assert taken_s > 1.0, "it did not wait for the second"


def test_a_job_of_one_process_is_told_to_stop_at_once(tmp_path: Path) -> None:
    ended, _ = stopped_early(tmp_path, 1)
    assert ended.ending == "left"
    assert ended.exit_codes in ((-signal.SIGTERM,), (LEFT,))
