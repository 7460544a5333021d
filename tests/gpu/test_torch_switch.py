"""Cost of giving up a device with PyTorch, on a real GPU.

``python -m pytest -s tests/gpu`` prints a table: seconds that training pauses for a checkpoint,
that the device takes to release and restore the state, and to write and read a checkpoint.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]

from fairlead.job import checkpoint  # noqa: E402  # needs PyTorch
from fairlead.job.registration import adapt  # noqa: E402
from fairlead.job.state_format import SavedState, encode_chunks  # noqa: E402
from fairlead.job.torch import HostState  # noqa: E402

MAX_SWITCH_S = {1024: 0.15, 4096: 0.25, 8192: 0.6}
"""width of the model → seconds for release and restore; 0.1, 1.6 and 6.4 GB"""


class Training:
    """An MLP of eight layers with Adam, as in the table of costs."""

    def __init__(self, width: int) -> None:
        torch.manual_seed(0)
        layers = [torch.nn.Linear(width, width) for _ in range(8)]
        self.model = torch.nn.Sequential(*layers).to("cuda")
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-4, fused=True)
        self.data = torch.randn(64, width, device="cuda")

    def step(self) -> float:
        self.optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.functional.mse_loss(self.model(self.data), self.data)
        loss.backward()
        self.optimizer.step()
        return float(loss.item())

    def state(self) -> dict[str, Any]:
        things = (("model", self.model), ("optimizer", self.optimizer))
        return {name: adapt(name, thing).state_dict() for name, thing in things}

    def storages(self) -> list[Any]:
        tensors = [*self.model.state_dict().values()]
        tensors += [value for state in self.optimizer.state.values() for value in state.values()]
        unique = {tensor.untyped_storage()._cdata: tensor.untyped_storage() for tensor in tensors}
        return [storage for storage in unique.values() if storage.device.type == "cuda"]


@contextmanager
def timed(times: dict[str, float], name: str) -> Iterator[None]:
    torch.cuda.synchronize()
    began = time.perf_counter()
    yield
    torch.cuda.synchronize()
    times[name] = time.perf_counter() - began


@pytest.mark.parametrize("width", MAX_SWITCH_S)
def test_a_switch_costs_about_as_much_as_copying_the_state(width: int, tmp_path: Path) -> None:
    training, host = Training(width), HostState()
    times: dict[str, float] = {}
    training.step()
    training.optimizer.zero_grad(set_to_none=True)
    storages = training.storages()
    nbytes = sum(storage.nbytes() for storage in storages)
    with timed(times, "first copy"):
        host.copy_out(storages)
    with timed(times, "release"):
        host.release(storages)
    free = torch.cuda.mem_get_info()[0]
    with timed(times, "restore"):
        host.restore()
    assert free - torch.cuda.mem_get_info()[0] > 0.9 * nbytes  # the memory was free meanwhile
    encode_chunks(training.state(), host)
    with timed(times, "pause"):
        chunks = encode_chunks(training.state(), host)
    expected = training.step()
    directory = str(tmp_path)
    checkpoint.raise_fence(directory, 1)
    with timed(times, "write"):
        checkpoint.write(directory, 1, 1, 0, *chunks)
        checkpoint.commit(directory, 1, 1, 1)
    other = Training(width)
    with timed(times, "read"):
        payload = checkpoint.read(directory, 0)
        assert payload is not None
        saved = SavedState(payload)
        for name, thing in (("model", other.model), ("optimizer", other.optimizer)):
            adapt(name, thing).load_state_dict(saved.take(name, to_device=False))
    assert other.step() == expected
    row = "  ".join(f"{name} {seconds:.3f}" for name, seconds in times.items())
    print(f"\n{nbytes / 1e9:.1f} GB: {row}")  # noqa: T201  # the table is the result
    assert times["release"] + times["restore"] <= MAX_SWITCH_S[width]
