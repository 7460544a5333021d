"""Host memory for tensors: faulted in and locked piece by piece, ahead of a save."""

import gc
import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from fairlead import block_file  # noqa: E402  # below the skip
from fairlead.job import checkpoint  # noqa: E402
from fairlead.job.registration import adapt  # noqa: E402
from fairlead.job.saving import memory_file, saver  # noqa: E402
from fairlead.job.saving.saver import LIMIT_VARIABLE, Saver  # noqa: E402
from fairlead.job.state_format import SavedState  # noqa: E402
from fairlead.job.torch import HostState, host_state  # noqa: E402  # needs PyTorch

PIECE = 1 << 12


class Locks:
    """The driver's list of locked memory: address → bytes."""

    def __init__(self) -> None:
        self.locked: dict[int, int] = {}

    def lock(self, address: int, nbytes: int) -> bool:
        assert address not in self.locked
        self.locked[address] = nbytes
        return True

    def unlock(self, addresses: list[int]) -> None:
        while addresses:
            del self.locked[addresses.pop()]


@pytest.fixture
def locks(monkeypatch: pytest.MonkeyPatch) -> Locks:
    made = Locks()
    monkeypatch.setattr(host_state, "PIECE", PIECE)
    monkeypatch.setattr(host_state, "_MARGIN", PIECE)
    monkeypatch.setattr(host_state, "_lock", made.lock)
    monkeypatch.setattr(host_state, "_unlock", made.unlock)
    return made


def _memory(nbytes: int, piece: int = PIECE) -> Any:
    return host_state._Memory(nbytes, pinned=True, piece=piece)


def test_memory_is_locked_piece_by_piece_and_unlocked_before_it_is_freed(locks: Locks) -> None:
    memory = _memory(3 * PIECE + 5)
    pieces = memory.take()
    next(pieces)
    assert [*locks.locked.values()] == [PIECE]
    pieces.close()  # a save begins, and takes the rest
    memory.take_all()
    begin = memory.content.data_ptr()
    expected = {begin + i * PIECE: PIECE for i in range(3)} | {begin + 3 * PIECE: 5}
    assert locks.locked == expected
    memory.take_all()
    del pieces, memory
    gc.collect()
    assert not locks.locked


def test_no_transfer_crosses_two_pieces_and_every_byte_arrives(locks: Locks) -> None:
    tensors = [torch.randint(0, 255, (n,), dtype=torch.uint8) for n in (1, 5000, 0, 9000, 4032)]
    storages = [tensor.untyped_storage() for tensor in tensors]
    before, host = [tensor.clone() for tensor in tensors], HostState()
    for _ in host.take_ahead(20_000, pinned=True):
        pass
    taken, address = host.nbytes, host._memory.content.data_ptr()
    assert taken == sum(locks.locked.values())
    views = host.copy_out(storages)
    assert [bytes(view) for view in views] == [bytes(one.numpy()) for one in before]
    copied: list[tuple[int, int]] = []

    class Part:
        """A part of memory that notes what is copied to it."""

        def __init__(self, begin: int, size: int) -> None:
            self.begin, self.size = begin, size

        def storage_offset(self) -> int:
            return self.begin

        def numel(self) -> int:
            return self.size

        def __getitem__(self, part: slice) -> "Part":
            return Part(self.begin + part.start, part.stop - part.start)

        def copy_(self, other: "Part", *, non_blocking: bool) -> None:
            assert non_blocking
            assert other.size == self.size
            copied.append((self.begin, self.begin + self.size))

    host_state._transfer(Part(100, 9000), target=Part(100, 9000), source=Part(0, 9000))
    assert [begin for begin, _ in copied] == [100, PIECE, 2 * PIECE]
    assert [end for _, end in copied] == [PIECE, 2 * PIECE, 9100]
    host.release(storages, copied=True)
    host.restore()
    assert all(torch.equal(one, two) for one, two in zip(tensors, before, strict=True))
    assert (host.nbytes, host._memory.content.data_ptr()) == (taken, address)


def test_a_release_takes_no_memory_if_that_of_state_and_gradients_was_taken_ahead(
    locks: Locks,
) -> None:
    state, gradient = torch.rand(5000), torch.rand(3000)
    storages, host = [one.untyped_storage() for one in (state, gradient)], HostState()
    before, sizes = gradient.clone(), [storage.nbytes() for storage in storages]
    assert host.lacking(*sizes) == sum(sizes)
    for _ in host.take_ahead(*sizes, pinned=True):
        pass
    assert host.lacking(*sizes) == 0
    taken, locked = host.nbytes, dict(locks.locked)
    assert taken == sum(locked.values())
    host.copy_out(storages[:1])
    host.release(storages, copied=True)
    assert (host.nbytes, locks.locked) == (taken, locked)
    host.restore()
    assert torch.equal(gradient, before)


def test_a_checkpoint_is_read_into_locked_memory_which_is_unlocked_after_it(
    locks: Locks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(block_file, "BLOCK", PIECE)
    model = torch.nn.Linear(200, 200)
    chunks = Saver(str(tmp_path), {}).encode({"model": model.state_dict()})
    checkpoint.raise_fence(str(tmp_path), 1)
    checkpoint.write(str(tmp_path), 1, 1, 0, *chunks)
    checkpoint.commit(str(tmp_path), 1, 1, 1)
    host_state.reserve_for_read(saver.saved_bytes(str(tmp_path)))
    assert len(locks.locked) == 1  # one piece: objects copy whole tensors
    payload, other = checkpoint.read(str(tmp_path), 0), torch.nn.Linear(200, 200)
    assert payload is not None
    saved = SavedState(payload)
    del payload
    state = saved.take("model", to_copy=True)
    assert state["weight"].data_ptr() - min(locks.locked) < max(locks.locked.values())
    adapt("model", other).load_state_dict(state)
    assert torch.equal(other.weight, model.weight)
    del saved, state
    gc.collect()
    assert len(locks.locked) == 1  # to unlock and free it takes a while: not before training
    block_file.drop_read_memory()
    gc.collect()
    assert not locks.locked


def test_a_state_is_saved_bit_identical_with_memory_taken_ahead_and_without() -> None:
    if not memory_file.is_in_memory("/dev/shm"):
        pytest.skip("/dev/shm is not a file system in memory")
    model = torch.nn.Linear(1500, 1500)
    with TemporaryDirectory(dir="/dev/shm") as directory:
        checkpoint.raise_fence(directory, 1)
        made, contents = Saver(directory, {LIMIT_VARIABLE: "1000"}), []
        for steps in (1, 2):
            chunks, spare = made.encode({"model": model.state_dict()}), made.take_spare()
            assert (spare is not None) == (steps > 1)
            name = checkpoint.write(directory, 1, steps, 0, *chunks, spare=spare)
            contents.append(Path(directory, name).read_bytes())
            checkpoint.commit(directory, 1, steps, 1)
            for _ in range(2):
                made.step_done(lambda: {"model": model.state_dict()})
            made._ahead.wait()
        assert contents[0] == contents[1]
        # Before the first checkpoint the size of the tensors is known.
        fresh = Saver(f"{directory}/none", {LIMIT_VARIABLE: "1000"})
        os.mkdir(f"{directory}/none")
        for _ in range(2):
            fresh.step_done(lambda: {"model": model.state_dict()})
        fresh._ahead.wait()
        assert fresh.host_memory().nbytes >= 1500 * 1501 * 4
        for one in (made, fresh):
            spare = one.take_spare()
            assert spare is not None
            assert spare.nbytes > 1500 * 1501 * 4
            spare.close()
