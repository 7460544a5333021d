"""Copies of a job: an item is trained on once, states are averaged, each step counts once."""

import os
import signal
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path

import pytest
import torch
from tests.unit.job.torch.leases import Server, leased
from torch.utils.data import DataLoader

from fairlead import failpoints
from fairlead.job import EXIT_PREEMPTED, checkpoint
from fairlead.job.checkpoint import FencedError
from fairlead.job.committed import CommittedCheckpoint
from fairlead.job.copies.averaging import average, restored_state
from fairlead.job.copies.merging import fence_earlier_leases, merge_copies
from fairlead.job.copies.part import CopyPart
from fairlead.job.state_format import encode_state

SHARES = ((0.0, 0.6), (0.6, 0.9), (0.9, 1.0))


class Job:
    """A job's directories, and its processes one after the other."""

    def __init__(self, root: Path, server: Server) -> None:
        self.directory, self.copies = str(root / "checkpoint"), str(root / "copies")
        self._server = server
        self.seen: list[int] = []
        """items trained on, by all processes"""

    def save_copy(self, lease: int, steps: int, **state: object) -> str:
        """Save the checkpoint of a copy; return its directory."""
        directory = f"{self.copies}/{lease}"
        checkpoint.raise_fence(directory, lease)
        checkpoint.write(directory, lease, steps, 0, encode_state(state))
        checkpoint.commit(directory, lease, steps, 1)
        return directory

    def run(
        self, lease: int, part: CopyPart | None, total: int = 100, *, epoch: int = 0
    ) -> tuple[float, int]:
        """Train under a lease; return the weight at the start and the exit status.

        Items are numbers, or those of a registered loader that shuffles ``epoch`` of them.
        """
        directory = f"{self.copies}/{lease}" if part else self.directory
        checkpoint.raise_fence(directory, lease)
        environment = {
            "FAIRLEAD_URL": self._server.url,
            "FAIRLEAD_JOB_TOKEN": "secret",
            "FAIRLEAD_CHECKPOINT_DIR": directory,
            "FAIRLEAD_STEPS": str(total),
            **(part.environment() if part else {}),
        }
        model = {"weight": 0.0, "made": 0}
        with leased(lease, environment, None) as run:
            run.register(model=model)
            items: Iterable[object] = range(total)
            if epoch:
                items = shuffled(epoch)
                run.register(loader=items)
            before = float(model["weight"])
            try:
                for _ in run.epochs(total // epoch) if epoch else (0,):
                    for item in run.steps(items):
                        self.seen.append(int(str(item)))
                        model["weight"] += 1.0
                        model["made"] += 1
            except SystemExit as left:
                return before, int(str(left.code))
        return before, 0

    def merged(self) -> CommittedCheckpoint:
        merge_copies(self.directory, self.copies, ())
        committed = checkpoint.latest(self.directory)
        assert committed is not None
        return committed


def shuffled(epoch: int) -> DataLoader[int]:
    """Return a loader of numbers below ``epoch``, in another order in every pass."""
    seed = torch.Generator().manual_seed(7)
    return DataLoader(range(epoch), batch_size=None, shuffle=True, generator=seed)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    handler, server = signal.getsignal(signal.SIGTERM), Server()
    yield server
    signal.signal(signal.SIGTERM, handler)
    server.close()


@pytest.fixture
def job(tmp_path: Path, server: Server) -> Job:
    return Job(tmp_path, server)


def test_copies_make_all_steps_once_and_the_job_itself_the_last_ones(job: Job) -> None:
    for number, (limit, items) in enumerate(zip((60, 30, 9), SHARES, strict=True), 1):
        part = CopyPart(number, limit, items, job.directory)
        assert job.run(number, part) == (0.0, EXIT_PREEMPTED)
    committed = job.merged()
    steps = dict(zip(committed.files, committed.weights, strict=True))
    assert sum(steps.values()) == committed.steps <= 99
    # Parts that end with the items are made but for rounding.
    assert committed.steps >= 97
    assert len(set(job.seen)) == len(job.seen) == committed.steps
    weight = sum(n * n for n in steps.values()) / committed.steps
    before, status = job.run(4, None)
    assert before == pytest.approx(weight)
    assert status == 0
    latest = checkpoint.latest(job.directory)
    assert latest == CommittedCheckpoint(4, 100, ("4-100.0.ckpt",))
    assert len(job.seen) == 100


@pytest.mark.parametrize("epoch", [100, 25, 0])
@pytest.mark.parametrize("died", [False, True])
def test_copies_that_left_at_different_items_cost_no_step(
    job: Job, epoch: int, died: bool
) -> None:
    loader = shuffled(epoch) if epoch else None
    order = list(chain(*[loader] * (100 // epoch))) if loader else list(range(100))
    assert job.run(1, CopyPart(1, 20, (0.0, 0.5), job.directory), epoch=epoch)[1] != 0
    assert job.run(2, CopyPart(2, 15, (0.5, 1.0), job.directory), epoch=epoch)[1] != 0
    assert job.merged().steps == 35
    # One copy is slower than planned, or dies without a checkpoint; the other is far ahead.
    if not died:
        assert job.run(3, CopyPart(3, 5, (0.0, 0.5), job.directory), epoch=epoch)[1] != 0
    assert job.run(4, CopyPart(4, 25, (0.5, 1.0), job.directory), epoch=epoch)[1] != 0
    steps = 60 if died else 65
    committed = job.merged()
    assert committed.steps == steps
    # Where all are ahead, the position is that of the checkpoint before.
    assert (0 in committed.weights) == died
    job.seen.clear()
    assert job.run(5, None, epoch=epoch)[1] == 0
    assert [int(item) for item in job.seen] == [int(item) for item in order[steps:]]
    latest = checkpoint.latest(job.directory)
    assert latest is not None
    assert latest.steps == 100


def test_the_first_copy_that_survives_is_not_ahead_of_its_steps(job: Job) -> None:
    assert job.run(2, CopyPart(2, 25, (0.5, 1.0), job.directory), epoch=25)[1] != 0
    committed = job.merged()
    assert (committed.steps, committed.position) == (25, None)
    job.seen.clear()
    assert job.run(3, None, epoch=25)[1] == 0
    assert len(job.seen) == 75


def test_every_item_belongs_to_one_copy_in_proportion_to_its_share() -> None:
    parts = [CopyPart(1, 10, items, "") for items in SHARES]
    own = [list(part.own_items(iter(range(10_000)))) for part in parts]
    assert sorted(chain(*own)) == list(range(10_000))
    assert [len(items) for items in own] == pytest.approx([6000, 3000, 1000], abs=5)
    assert {part.position for part in parts} == {10_000}


def test_a_copy_whose_items_are_used_up_does_not_end_the_job(job: Job) -> None:
    part = CopyPart(1, 60, SHARES[0], job.directory)
    assert job.run(1, part, total=10)[1] == EXIT_PREEMPTED
    assert job.merged().steps == len(job.seen) == 6


def test_a_copy_without_steps_leaves_the_end_of_the_program_to_the_job(job: Job) -> None:
    assert job.run(1, CopyPart(1, 0, SHARES[0], job.directory)) == (0.0, EXIT_PREEMPTED)
    assert not job.seen
    job.save_copy(2, 100, model={"weight": 1.0})  # all of the job's steps
    assert job.merged().steps == 100
    assert job.run(3, CopyPart(1, 5, SHARES[0], job.directory)) == (1.0, EXIT_PREEMPTED)


def test_what_a_lost_lease_saves_beside_copies_does_not_count(job: Job) -> None:
    checkpoint.raise_fence(job.directory, 3)
    for steps in (10, 20):
        checkpoint.write(job.directory, 3, steps, 0, encode_state({}))
    checkpoint.commit(job.directory, 3, 10, 1)
    fence_earlier_leases(job.directory, job.copies, {5, 6})
    with pytest.raises(FencedError):
        checkpoint.commit(job.directory, 3, 20, 1)
    job.save_copy(5, 7, model={})
    fence_earlier_leases(job.directory, job.copies, {6})  # a copy that starts later
    assert job.merged().steps == 17


def test_a_copy_that_begins_after_its_round_was_merged_adds_nothing(job: Job) -> None:
    checkpoint.raise_fence(job.directory, 3)
    fence_earlier_leases(job.directory, job.copies, {8, 9})  # of the next round
    job.save_copy(5, 10, model={})
    job.save_copy(8, 4, model={})
    assert merge_copies(job.directory, job.copies, {9}) == 4
    assert job.merged() == CommittedCheckpoint(8, 4, ("8-4.0.ckpt",), (4,))


@pytest.mark.parametrize("point", [one for one in failpoints.SERVER if ".merge." in one])
def test_a_merge_can_be_repeated_after_a_crash(
    job: Job, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    job.save_copy(5, 10, model={"weight": 1.0})
    job.save_copy(6, 30, model={"weight": 3.0})

    def crash(passed: str) -> None:
        if passed == point:
            raise KeyboardInterrupt

    with monkeypatch.context() as broken:
        broken.setattr(failpoints, "point", crash)
        with pytest.raises(KeyboardInterrupt):
            job.merged()
    merged = CommittedCheckpoint(6, 40, ("6-30.0.ckpt", "5-10.0.ckpt"), (30, 10))
    assert job.merged() == job.merged() == merged
    state = restored_state(job.directory, merged, 0)
    assert state.take("model") == {"weight": pytest.approx(2.5)}
    assert not list(Path(job.copies).iterdir())


def test_nothing_is_merged_while_a_copy_is_open_and_a_late_one_is_fenced(job: Job) -> None:
    directory = job.save_copy(5, 10, model={"weight": 1.0})
    merge_copies(job.directory, job.copies, {5})
    assert checkpoint.latest(job.directory) is None
    checkpoint.write(directory, 5, 20, 0, encode_state({}))
    fenced: list[FencedError] = []
    link = checkpoint.commit_average

    def commit_late(
        target: str, merged: CommittedCheckpoint, paths: Sequence[str], *, wait_s: float
    ) -> None:
        with pytest.raises(FencedError) as refused:
            checkpoint.commit(directory, 5, 20, 1)
        fenced.append(refused.value)
        link(target, merged, paths, wait_s=wait_s)

    with pytest.MonkeyPatch.context() as slow:
        slow.setattr(checkpoint, "commit_average", commit_late)
        assert job.merged().steps == 10
    assert fenced


def test_a_copy_without_a_usable_checkpoint_adds_nothing(job: Job) -> None:
    job.save_copy(5, 10, model={"weight": 1.0})
    damaged = Path(job.save_copy(6, 30, model={"weight": 3.0}))
    (damaged / "latest.json").write_text("{")
    Path(job.copies, "7").mkdir()
    assert job.merged() == CommittedCheckpoint(7, 10, ("5-10.0.ckpt",), (10,))


@pytest.mark.skipif(os.geteuid() != 0, reason="gives directories to another user")
def test_the_merged_checkpoint_belongs_to_the_user_of_the_copies(job: Job) -> None:
    copy, nobody = Path(job.save_copy(5, 10, model={"weight": 1.0})), 65534
    for path in (copy, *copy.iterdir()):
        os.chown(path, nobody, nobody)
    job.merged()
    owners = {path.name: path.stat().st_uid for path in Path(job.directory).iterdir()}
    assert owners == {"latest.json": nobody, "5-10.0.ckpt": nobody}
    assert Path(job.directory).stat().st_uid == nobody


def test_floating_point_values_are_averaged_and_others_are_of_the_first_copy() -> None:
    states = [
        {
            "weights": torch.full((2,), value, dtype=torch.bfloat16),
            "steps": torch.tensor(count),
            "rates": [{"lr": 0.1, "seen": count}],
            "lost": ("a", value),
            "only": {str(count): value},
        }
        for value, count in ((1.0, 30), (3.0, 10))
    ]
    merged = average(states, [0.75, 0.25])
    assert merged["weights"].dtype == torch.bfloat16
    assert merged["weights"].tolist() == [1.5, 1.5]
    assert merged["steps"].item() == 30
    assert merged["rates"] == [{"lr": 0.1, "seen": 30}]
    assert merged["lost"] == ("a", 1.5)
    assert merged["only"] == {"30": 1.0}
    tied = torch.nn.Parameter(torch.ones(1))
    both = [{"in": tied, "out": tied}, {"in": torch.nn.Parameter(torch.zeros(1))} | {"out": tied}]
    assert average(both, [0.5, 0.5])["in"].item() == 0.5
    assert tied.item() == 1.0
