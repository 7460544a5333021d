"""Interrupted training ends with the same bits as training that nothing interrupts."""

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from tests.unit.job.torch.gangs import Gang, Server, end

from fairlead.job import EXIT_PREEMPTED, checkpoint

pytest.importorskip("torch")

PREEMPTIONS = 10
KILLED = 6
"""lease whose last rank is killed"""


@pytest.mark.parametrize("kind", ["alone", "ddp", "fsdp"])
def test_ten_preemptions_and_a_killed_rank_change_no_bit(kind: str, tmp_path: Path) -> None:
    from tests.unit.job.torch import training  # noqa: PLC0415  # imports PyTorch

    gang = Gang(kind, tmp_path, training.train)
    assert end(gang.start("plain", {})) == [0] * gang.world_size
    directory = str(tmp_path / "checkpoint")
    server = Server(tmp_path)
    server.world_size = gang.world_size
    preempted, lease = 0, 0
    try:
        while True:
            lease += 1
            checkpoint.raise_fence(directory, lease)
            committed = checkpoint.latest(directory)
            done = committed.steps if committed else 0
            pause_after = None
            if lease == KILLED:
                pause_after = done + 10
            elif preempted < PREEMPTIONS:
                server.leave_from[lease] = done + 1
                pause_after = done + 2
            environment = server.environment(lease, pause_after)
            members = gang.start("leased", {**environment, "FAIRLEAD_CHECKPOINT_DIR": directory})
            if lease == KILLED:
                kill_after_checkpoint(directory, done, members)
            codes = end(members)
            if codes == [0] * gang.world_size:
                break
            assert lease == KILLED or codes == [EXIT_PREEMPTED] * gang.world_size, codes
            preempted += codes[0] == EXIT_PREEMPTED
    finally:
        server.close()
    assert preempted >= PREEMPTIONS
    for leased, plain in zip(gang.results("leased"), gang.results("plain"), strict=True):
        for part in ("indices", "losses", "rate", "parameters"):
            assert leased[part] == plain[part], part


def kill_after_checkpoint(directory: str, done: int, members: list[Any]) -> None:
    """Kill the last rank a few steps after a checkpoint, then the others, as a keeper does."""
    until = time.monotonic() + 180
    while (committed := checkpoint.latest(directory)) is None or committed.steps <= done:
        assert time.monotonic() < until
        time.sleep(0.005)
    os.kill(members[-1].pid, signal.SIGKILL)
    members[-1].join()
    for member in members:
        member.kill()
