"""Cost of giving up a device with PyTorch, on a real GPU.

``python -m pytest -s tests/gpu`` prints tables: seconds that training pauses for a checkpoint,
that the device takes to release and restore the state, to write a checkpoint, to read it into
memory and to load it from there; and the share of a round that checkpoints cost.
"""

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.support.waiting import until
from tests.unit.job.torch.leases import Server, leased

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu

from fairlead.job import Run, checkpoint  # noqa: E402  # needs PyTorch
from fairlead.job.leased_run import LeasedRun  # noqa: E402
from fairlead.job.registration import adapt  # noqa: E402
from fairlead.job.state_format import SavedState, encode_chunks  # noqa: E402
from fairlead.job.torch import HostState  # noqa: E402

MAX_SWITCH_S = {1024: 0.15, 4096: 0.25, 8192: 0.6}
"""width of the model → seconds for release and restore; 0.1, 1.6 and 6.4 GB"""


@pytest.fixture(autouse=True)
def no_memory_of_earlier_tests() -> None:
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()


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
    with timed(times, "load"):
        saved = SavedState(payload)
        for name, thing in (("model", other.model), ("optimizer", other.optimizer)):
            adapt(name, thing).load_state_dict(saved.take(name, to_copy=True))
    assert other.step() == expected
    row = "  ".join(f"{name} {seconds:.3f}" for name, seconds in times.items())
    print(f"\n{nbytes / 1e9:.1f} GB: {row}")  # noqa: T201  # the table is the result
    assert times["release"] + times["restore"] <= MAX_SWITCH_S[width]


ROUNDS_S = {15: 0.02, 60: 0.005}
"""length of a round → greatest share of it that a checkpoint may cost"""
MEASURED_S, PAIRS = 4.0, 5


def test_a_checkpoint_costs_a_small_part_of_a_round(tmp_path: Path) -> None:
    """Compares equal numbers of steps with and without a checkpoint behind them, in pairs."""
    training, server = Training(1024), Server()
    environment = {
        "FAIRLEAD_URL": server.url,
        "FAIRLEAD_JOB_TOKEN": "secret",
        "FAIRLEAD_CHECKPOINT_DIR": str(tmp_path),
    }
    checkpoint.raise_fence(str(tmp_path), 1)
    try:
        with leased(1, environment, None) as run:
            run.register(model=training.model, optimizer=training.optimizer)
            steps = run.steps(iter(int, 1))
            make_steps(training, steps, 50)
            run.checkpoint()
            rate = 200 / make_steps(training, steps, 200)
            count = max(int(MEASURED_S * rate), 50)
            lost = sorted(
                make_steps(training, steps, count, save=run) - make_steps(training, steps, count)
                for _ in range(PAIRS)
            )
    finally:
        server.close()
    cost_s = lost[PAIRS // 2]
    shares = {round_s: cost_s / round_s for round_s in ROUNDS_S}
    row = "  ".join(f"{share:.3%} of {round_s} s" for round_s, share in shares.items())
    print(f"\n0.1 GB, {rate:.0f} steps/s: a checkpoint costs {cost_s:.3f} s: {row}")  # noqa: T201  # the result
    for round_s, most in ROUNDS_S.items():
        assert shares[round_s] < most


def test_a_job_reports_the_memory_that_its_tensors_have_needed(tmp_path: Path) -> None:
    """The peak of all tensors, without the blocks that PyTorch's allocator keeps."""
    training, server = Training(1024), Server()
    environment = {
        "FAIRLEAD_URL": server.url,
        "FAIRLEAD_JOB_TOKEN": "secret",
        "FAIRLEAD_CHECKPOINT_DIR": str(tmp_path),
    }
    checkpoint.raise_fence(str(tmp_path), 1)
    try:
        with leased(1, environment, None) as run:
            torch.empty(3 * 2**30, dtype=torch.uint8, device="cuda")
            make_steps(training, run.steps(iter(int, 1)), 10)
            peak_gib = torch.cuda.max_memory_allocated() / 2**30
            assert 3.0 < peak_gib < 4.0
            expected = {"memory_gib": pytest.approx(peak_gib, abs=0.006)}
            assert isinstance(run, LeasedRun)
            run._lease.check_now()
            until(lambda: any(renewal.get("metrics") == expected for renewal in server.renewals))
    finally:
        server.close()


def make_steps(
    training: Training, steps: Iterator[Any], count: int, *, save: Run | None = None
) -> float:
    """Return the seconds for a number of steps, with a checkpoint after the first one."""
    torch.cuda.synchronize()
    began = time.perf_counter()
    for number in range(count):
        next(steps)
        training.step()
        if save is not None and number == 0:
            save.checkpoint()
    torch.cuda.synchronize()
    return time.perf_counter() - began
