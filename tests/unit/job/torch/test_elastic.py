"""Gangs that grow and shrink: each item once, the same global batches, scaled learning rates."""

import random
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.unit.job.torch.gangs import Gang, Server, end

torch = pytest.importorskip("torch")

from torch.utils import data  # noqa: E402  # needs PyTorch

from fairlead.job import EXIT_PREEMPTED, checkpoint  # noqa: E402
from fairlead.job.registration import RegisteredState  # noqa: E402
from fairlead.job.run import Run  # noqa: E402
from fairlead.job.state_format import SavedState, encode_state  # noqa: E402
from fairlead.job.torch import GlobalBatchSampler, ScaledLearningRate  # noqa: E402

ITEMS = 23


class Items(data.Dataset):
    """Items that are their own indices."""

    def __len__(self) -> int:
        return ITEMS

    def __getitem__(self, index: int) -> int:
        return index


class Rank:
    """One rank of a gang, restored from a rank's checkpoint."""

    def __init__(self, loader: data.DataLoader, saved: bytes | None) -> None:
        self.loader, self.state = loader, RegisteredState()
        self.state.saved = None if saved is None else SavedState(saved)
        self.state.add("loader", loader)
        self.state.continue_epoch()
        self.state.begin()
        self.batches = iter(loader)
        self.state.mark()

    def step(self) -> list[int] | None:
        batch = next(self.batches, None)
        self.state.mark()
        return None if batch is None else batch.tolist()

    def save(self) -> bytes:
        next(self.batches, None)  # in vain, as at the end of a lease
        return encode_state(self.state.state_dicts())


def global_batches(size: int, rank: int, world_size: int, workers: int = 0) -> data.DataLoader:
    sampler = GlobalBatchSampler(Items(), size, seed=7, rank=rank, world_size=world_size)
    return data.DataLoader(Items(), batch_sampler=sampler, num_workers=workers)


def strided(size: int, rank: int, world_size: int) -> data.DataLoader:
    sampler = data.DistributedSampler(Items(), world_size, rank, seed=7)
    return data.DataLoader(Items(), size // world_size, sampler=sampler)


def train(gangs: Sequence[tuple[int, int, int]], make: Any = global_batches) -> list[list[int]]:
    """Return the items of each step of a pass, trained by gangs of (ranks, batch, steps)."""
    steps: list[list[int]] = []
    saved: list[bytes] = []
    for world_size, size, count in gangs:
        ranks = [
            Rank(make(size, rank, world_size), next(iter(saved[rank:] or saved[:1]), None))
            for rank in range(world_size)
        ]
        for _ in range(count):
            parts = [rank.step() for rank in ranks]
            if parts[0] is None:
                assert parts == [None] * world_size
                break
            steps.append([item for part in parts for item in part or ()])
        saved = [rank.save() for rank in ranks]
    return steps


@pytest.mark.parametrize("make", [global_batches, strided])
def test_a_gang_of_changing_size_trains_on_the_same_global_batches(make: Any) -> None:
    batches = train([(1, 6, 1), (3, 6, 1), (2, 6, 1)], make)
    alone = train([(1, 6, 3)], make)
    assert [sorted(batch) for batch in batches] == [sorted(batch) for batch in alone]


def test_batches_that_a_worker_has_fetched_ahead_go_to_the_gang_of_the_next_size() -> None:
    make = partial(global_batches, workers=1)
    assert train([(1, 6, 1), (2, 6, 2)], make) == train([(1, 6, 3)])


def test_a_gang_of_changing_size_trains_on_each_item_once_also_in_other_batches() -> None:
    batches = train([(2, 4, 1), (3, 7, 1), (1, 2, 1), (4, 4, 99)])
    assert [len(batch) for batch in batches] == [4, 7, 2, 4, 4, 4]
    items = [item for batch in batches for item in batch]
    assert sorted(items[:ITEMS]) == list(range(ITEMS))
    assert items[ITEMS:] == [items[-4]] * 2  # ranks without an item of the last batch, weight 0


def test_weighted_means_of_all_ranks_are_the_mean_of_the_global_batch() -> None:
    ranks = [Rank(global_batches(7, rank, 4), None) for rank in range(4)]
    alone = Rank(global_batches(7, 0, 1), None)
    assert len(alone.loader) == 4
    while (batch := alone.step()) is not None:
        means = []
        for rank in ranks:
            part = rank.step()
            assert part is not None
            means.append(rank.loader.batch_sampler.weight * sum(part) / len(part))
        assert sum(means) / 4 == pytest.approx(sum(batch) / len(batch))
        assert alone.loader.batch_sampler.weight == 1.0


def test_a_distributed_sampler_continues_after_the_items_that_a_gang_of_another_size_used() -> (
    None
):
    batches = train([(1, 4, 3), (2, 6, 99)], strided)
    assert [len(batch) for batch in batches] == [4, 4, 4, 6, 6]
    assert {item for batch in batches for item in batch} == set(range(ITEMS))
    # 20 items are no multiple of 6: the batch that the two gangs share begins again.
    assert len(train([(1, 4, 5), (2, 6, 99)], strided)) == 5 + 1


def test_a_new_rank_draws_random_numbers_of_its_own() -> None:
    first = RegisteredState()
    first.add("generator", torch.Generator())
    first.mark()
    saved = encode_state(first.state_dicts())
    numbers = []
    for new_rank in (None, 1, 2, 1):
        state = RegisteredState()
        state.saved = SavedState(saved)
        state.resize(lambda: iter((saved,)), new_rank=new_rank)
        state.add("generator", torch.Generator())
        state.begin()
        numbers.append((torch.rand(()).item(), random.random()))
    assert numbers[1] == numbers[3]
    assert len(set(numbers)) == 3


@pytest.mark.parametrize(("rule", "factor"), [("linear", 2.0), ("sqrt", 2**0.5)])
def test_learning_rates_follow_the_size_of_the_gang(rule: Any, factor: float) -> None:
    def build(world_size: int) -> tuple[Any, Any, Any]:
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))
        rates = ScaledLearningRate(
            *(optimizer, scheduler), gang=1, rule=rule, world_size=world_size
        )
        return optimizer, scheduler, rates

    def step(optimizer: Any, scheduler: Any) -> Any:
        optimizer.step()
        scheduler.step()
        return optimizer.param_groups[0]["lr"]

    optimizer, scheduler, rates = build(1)
    assert step(optimizer, scheduler) == pytest.approx(0.1 / 2)
    grown = build(2)
    assert grown[0].param_groups[0]["lr"] == pytest.approx(0.1 * factor)
    for after, before in zip(grown, (optimizer, scheduler, rates), strict=True):
        after.load_state_dict(before.state_dict())
    assert grown[0].param_groups[0]["lr"] == pytest.approx(0.1 / 2 * factor)
    assert step(*grown[:2]) == pytest.approx(0.1 / 3 * factor)


def test_every_rank_has_a_part_of_the_global_batch() -> None:
    run = Run()
    parts = []
    for run.rank in range(3):
        run.world_size = 3
        parts.append(run.batch_size(8))
    assert parts == [3, 3, 2]
    with pytest.raises(ValueError, match=r"batch_size\(2\): .*expected at least one item"):
        run.batch_size(2)
    with pytest.raises(ValueError, match="global_batch: 2 for a gang of 3: expected at least one"):
        GlobalBatchSampler(Items(), 2, rank=0, world_size=3)
    unknown: Any = "cubic"
    with pytest.raises(ValueError, match="rule: 'cubic': expected linear or sqrt"):
        ScaledLearningRate(None, gang=1, rule=unknown)


@pytest.mark.parametrize(("kind", "sizes"), [("ddp", (2, 1, 2)), ("fsdp", (2, 3, 1, 2))])
def test_a_gang_that_shrinks_and_grows_learns_like_one_of_constant_size(
    kind: str, sizes: tuple[int, ...], tmp_path: Path
) -> None:
    from tests.unit.job.torch import training  # noqa: PLC0415  # imports PyTorch

    gang = Gang(kind, tmp_path, training.train_elastic)
    gang.world_size = 1
    assert end(gang.start("plain", {})) == [0]
    (plain,) = gang.results("plain")
    directory = str(tmp_path / "checkpoint")
    server = Server(tmp_path)
    try:
        for lease, size in enumerate(sizes, 1):
            gang.world_size = server.world_size = size
            is_last, done = lease == len(sizes), done_in(directory)
            if not is_last:
                server.leave_from[lease] = done + 2
            checkpoint.raise_fence(directory, lease)
            environment = server.environment(lease, None if is_last else done + 3)
            variables = {**environment, "FAIRLEAD_CHECKPOINT_DIR": directory}
            codes = end(gang.start("leased", variables))
            assert codes == [0 if is_last else EXIT_PREEMPTED] * size
    finally:
        server.close()
    for leased in gang.results("leased"):
        changes = [size for size, before in pairwise([*leased["ranks"], 0]) if size != before]
        assert changes == list(sizes)
        assert leased["items"] == plain["items"]
        for part in ("losses", "parameters"):
            assert leased[part] == pytest.approx(plain[part], rel=1e-3, abs=1e-5)


def done_in(directory: str) -> int:
    committed = checkpoint.latest(directory)
    return 0 if committed is None else committed.steps
