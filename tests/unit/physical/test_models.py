"""The bundled models train on a CPU, and their registered parts are all of their state."""

import copy
import io
import json
import sys
from collections.abc import Iterator

import pytest

torch = pytest.importorskip("torch")
from benchmarks.physical import worker  # noqa: E402  # needs PyTorch
from benchmarks.physical.workloads import MODELS, build, workload_name, workloads  # noqa: E402

from fairlead.files import read_speeds  # noqa: E402
from fairlead.job.registration import adapt  # noqa: E402


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize("model", MODELS)
def test_registered_parts_are_the_whole_state(model: str) -> None:
    training = build(workload_name(model, 1), "cpu")
    training.step()
    parts = {name: adapt(name, part) for name, part in training.parts.items()}
    saved = {name: copy.deepcopy(part.state_dict()) for name, part in parts.items()}
    random_state = torch.get_rng_state()
    expected = training.step().item()
    for name, part in parts.items():
        part.load_state_dict(saved[name])
    torch.set_rng_state(random_state)
    assert training.step().item() == expected


def test_the_bundled_table_has_all_workloads() -> None:
    assert sorted(read_speeds("h200").workloads) == sorted(workloads())


def test_a_worker_answers_each_command_with_a_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    commands = [{"prepare": "policy-2"}, {"measure": 0.2}]
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join(map(json.dumps, commands))))
    worker.main()
    prepared, speed = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert prepared["step_s"] > 0
    assert 0 < speed["low"] <= speed["steps_per_s"] <= speed["high"]


def test_the_interval_of_a_speed_is_that_of_student() -> None:
    speed = worker.block_speed(10, [1.6, 2.0, 2.0, 2.0, 2.4])
    half_s = 2.776 * (2 * 0.04**2 / 4) ** 0.5 / 5**0.5  # 4 degrees of freedom
    assert speed.steps_per_s == pytest.approx(5.0)
    assert 1 / speed.low == pytest.approx(0.2 + half_s, rel=2e-3)
    assert 1 / speed.high == pytest.approx(0.2 - half_s, rel=2e-3)
