"""Positions of loaders and samplers: no item lost, none repeated, the same random numbers."""

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.utils import data  # noqa: E402  # needs PyTorch

from fairlead.job.registration import RegisteredState, adapt  # noqa: E402
from fairlead.job.state_format import SavedState, encode_state  # noqa: E402

ITEMS, EPOCHS = 21, 3


class Items(data.Dataset):
    """Items with random numbers of every kind."""

    def __len__(self) -> int:
        return ITEMS

    def __getitem__(self, index: int) -> Any:
        return torch.tensor([index, torch.rand(()).item(), random.random()])


class Stream(data.IterableDataset):
    """A stream without indices."""

    def __iter__(self) -> Iterator[Any]:
        for index in range(ITEMS):
            yield torch.tensor([index, torch.rand(()).item(), random.random()])


def generator() -> Any:
    return torch.Generator().manual_seed(3)


def weighted() -> Any:
    weights = torch.arange(1.0, ITEMS + 1)
    return data.WeightedRandomSampler(weights, 30, generator=generator())


LOADERS: dict[str, Callable[[], Any]] = {
    "plain": lambda: data.DataLoader(Items(), 4),
    "shuffling": lambda: data.DataLoader(Items(), 4, shuffle=True),
    "with a generator": lambda: data.DataLoader(Items(), 4, shuffle=True, generator=generator()),
    "weighted": lambda: data.DataLoader(Items(), 4, sampler=weighted()),
    "repeating": lambda: data.DataLoader(
        Items(), 4, sampler=data.RandomSampler(Items(), replacement=True, generator=generator())
    ),
    "without batches": lambda: data.DataLoader(Items(), batch_size=None, shuffle=True),
    "dropping the last": lambda: data.DataLoader(Items(), 4, shuffle=True, drop_last=True),
    "stream": lambda: data.DataLoader(Stream(), 4),
    "sampler": lambda: data.BatchSampler(data.RandomSampler(Items()), 4, False),
    "workers": lambda: data.DataLoader(Items(), 4, shuffle=True, num_workers=2),
    "workers that stay": lambda: data.DataLoader(
        Items(), 4, shuffle=True, num_workers=2, persistent_workers=True, generator=generator()
    ),
}


def consume(make: Callable[[], Any], stops: list[int]) -> list[Any]:
    """Return the items of all epochs, and a random number after each, over several processes.

    As in a run, the item after the last step of a process is fetched in vain.
    """
    items: list[Any] = []
    saved: bytes | None = None
    for stop in [*stops, 10**6]:
        torch.manual_seed(0)
        random.seed(0)
        state, loader, epoch = RegisteredState(), make(), {"number": 0}
        if saved is not None:
            state.saved = SavedState(saved)
        state.add("loader", loader)
        state.add("epoch", epoch)
        state.continue_epoch()
        state.begin()
        for epoch["number"] in range(epoch["number"], EPOCHS):  # noqa: B020  # as run.epochs
            iterator = iter(loader)
            state.mark()
            for item in iterator:
                if len(items) == stop:
                    break
                items.append((torch.as_tensor(item).tolist(), torch.rand(()), random.random()))
                state.mark()
            else:
                continue
            break
        saved = encode_state(state.state_dicts())
    return items


@pytest.mark.parametrize("kind", LOADERS)
def test_an_interrupted_loader_yields_the_same_items_and_random_numbers(kind: str) -> None:
    whole = consume(LOADERS[kind], [])
    per_epoch = len(whole) // EPOCHS
    stops = [0, 1, 3, per_epoch, per_epoch + 2, 2 * per_epoch + 1]
    assert consume(LOADERS[kind], stops) == whole


def test_a_program_that_counts_epochs_itself_skips_the_finished_ones() -> None:
    loader = LOADERS["shuffling"]()
    position = adapt("loader", loader)
    epochs = [list(loader), list(loader)]
    iterator = iter(loader)
    first = next(iterator)
    position.mark()  # type: ignore[attr-defined]
    saved = encode_state({"loader": position.state_dict()})
    again = LOADERS["shuffling"]()
    adapt("loader", again).load_state_dict(SavedState(saved).take("loader"))
    rest = [list(again) for _ in range(3)]
    assert [len(epoch) for epoch in rest] == [0, 0, len(epochs[0]) - 1]
    seen = [*first[:, 0].tolist(), *(i for batch in rest[2] for i in batch[:, 0].tolist())]
    assert sorted(seen) == list(range(ITEMS))


def test_a_pass_that_was_abandoned_is_not_resumed() -> None:
    loader = LOADERS["plain"]()
    position = adapt("loader", loader)
    for _ in loader:
        break
    position.mark()  # type: ignore[attr-defined]
    again = LOADERS["plain"]()
    adapted = adapt("loader", again)
    adapted.load_state_dict(position.state_dict())
    adapted.continue_pass()  # type: ignore[attr-defined]
    adapted.mark()  # type: ignore[attr-defined]  # before the program iterates again
    assert adapted.state_dict()["pass"] == 1
    assert len(list(again)) == len(loader)


def test_a_sampler_and_its_loader_are_not_both_registered() -> None:
    sampler = data.RandomSampler(Items())
    adapt("sampler", sampler)
    with pytest.raises(TypeError, match=r"register\(loader=…\): its sampler is registered, too"):
        adapt("loader", data.DataLoader(Items(), 4, sampler=sampler))
