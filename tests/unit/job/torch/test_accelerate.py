"""Everything that an Accelerator prepared is registered."""

from typing import Any

import pytest

torch = pytest.importorskip("torch")
accelerate: Any = pytest.importorskip("accelerate")

from torch.utils import data  # noqa: E402  # needs PyTorch

from fairlead.job.registration import RegisteredState  # noqa: E402
from fairlead.job.run import Run  # noqa: E402
from fairlead.job.state_format import SavedState, encode_state  # noqa: E402
from fairlead.job.torch.accelerate import register  # noqa: E402


class Recorded(Run):
    """A run that keeps its registered objects."""

    def __init__(self, saved: bytes | None = None) -> None:
        super().__init__()
        self.state = RegisteredState()
        self.state.saved = None if saved is None else SavedState(saved)

    def register(self, **things: Any) -> None:
        for name, thing in things.items():
            self.state.add(name, thing)


def prepare() -> tuple[Any, Any, Any, Any, Any]:
    torch.manual_seed(0)
    accelerator = accelerate.Accelerator(cpu=True)
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.Adam(model.parameters())
    items = data.TensorDataset(torch.arange(24.0).reshape(8, 3))
    loader = data.DataLoader(items, 2, shuffle=True)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    return accelerator, *accelerator.prepare(model, optimizer, loader, scheduler)


def train(run: Recorded, stop: int | None = None) -> tuple[Any, list[Any]]:
    """Train one epoch, or until ``stop`` steps; return parameters and batches."""
    accelerator, model, optimizer, loader, scheduler = prepare()
    register(run, accelerator)
    run.state.continue_epoch()
    run.state.begin()
    seen: list[Any] = []
    iterator = iter(loader)
    run.state.mark()
    for (batch,) in iterator:
        if len(seen) == stop:
            break
        accelerator.backward(model(batch).sum())
        optimizer.step()
        optimizer.zero_grad()
        scheduler.step()
        seen.append(batch.tolist())
        run.state.mark()
    accelerator.free_memory()
    return [value.tolist() for value in model.state_dict().values()], seen


def test_prepared_objects_are_restored_exactly() -> None:
    parameters, batches = train(Recorded())
    first = Recorded()
    _, before = train(first, stop=2)
    rest = Recorded(encode_state(first.state.state_dicts()))
    assert train(rest) == (parameters, batches[2:])
    assert before == batches[:2]
