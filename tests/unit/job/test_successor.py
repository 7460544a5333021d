"""A process that waits for its first lease: prepared, without a trace in its results."""

import os
import random
from pathlib import Path

import pytest

from fairlead import block_file
from fairlead.job import checkpoint
from fairlead.job.keeper import successor


def test_a_payload_is_read_into_the_reserved_memory_once(tmp_path: Path) -> None:
    payload = os.urandom(block_file.BLOCK) + b"end"
    checkpoint.raise_fence(str(tmp_path), 1)
    checkpoint.write(str(tmp_path), 1, 5, 0, payload)
    checkpoint.commit(str(tmp_path), 1, 5, 1)
    successor.warm_up({"FAIRLEAD_CHECKPOINT_DIR": str(tmp_path)})
    (reserved,) = block_file._reserved
    reads = [checkpoint.read(str(tmp_path), 0) for _ in range(2)]
    assert reads == [payload, payload]
    assert [memoryview(one or b"").obj is reserved.obj for one in reads] == [True, False]
    block_file.drop_read_memory()
    assert not block_file._reserved
    block_file.reserve(block_file.BLOCK)  # small payloads need none
    assert not block_file._reserved


def test_preparation_draws_no_random_number(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    before = torch.random.get_rng_state(), random.getstate()
    successor.warm_up({"FAIRLEAD_CHECKPOINT_DIR": str(tmp_path)})
    after = torch.random.get_rng_state(), random.getstate()
    assert torch.equal(before[0], after[0])
    assert before[1] == after[1]


def test_a_process_without_a_keeper_never_trains() -> None:
    with pytest.raises(SystemExit) as exit_:
        successor.wait_for_lease({successor.VARIABLE: "1"})
    assert exit_.value.code == 85
