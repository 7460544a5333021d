"""A process that leaves its process group and joins the next trains on as if nothing happened."""

from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch import distributed, nn  # noqa: E402
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks  # noqa: E402

from fairlead.job.keeper.channel import RENDEZVOUS  # noqa: E402
from fairlead.job.torch import gang, init_process_group  # noqa: E402
from fairlead.job.torch.gang import Regrouping  # noqa: E402


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A gang of one; other tests may have left objects of sharded models."""
    for name in RENDEZVOUS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(gang, "joined", {})
    monkeypatch.setattr(gang, "_sharding_classes", list)
    yield
    if distributed.is_initialized():
        distributed.destroy_process_group()


def steps(model: Any, optimizer: Any, count: int) -> None:
    for _ in range(count):
        model(torch.ones(4, 8)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


@pytest.mark.parametrize("views", [False, True])
def test_a_model_keeps_its_parameters_and_is_bound_to_the_next_group(views: bool) -> None:
    trained = []
    for is_regrouped in (False, True):
        torch.manual_seed(0)
        init_process_group("gloo")
        inner = nn.Sequential(nn.Linear(8, 4), nn.Linear(4, 1))
        model = nn.parallel.DistributedDataParallel(inner, gradient_as_bucket_view=views)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        steps(model, optimizer, 3)
        if is_regrouped:
            groups = Regrouping()
            assert groups.obstacle() == ""
            groups.leave()
            assert not distributed.is_initialized()
            groups.join({})
            assert model.process_group is distributed.group.WORLD
        steps(model, optimizer, 3)
        trained.append([one.detach().clone() for one in model.parameters()])
        distributed.destroy_process_group()
        del model
    assert all(torch.equal(one, other) for one, other in zip(*trained, strict=True))


def test_a_program_without_a_process_group_has_none_afterwards() -> None:
    groups = Regrouping()
    assert groups.obstacle() == ""
    groups.leave()
    groups.join({"RANK": "0", "WORLD_SIZE": "1"})
    assert not distributed.is_initialized()


def test_groups_that_cannot_be_made_again_are_named() -> None:
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    reason = "its process group is not that of fairlead.job.torch.init_process_group"
    assert Regrouping().obstacle() == reason
    distributed.destroy_process_group()
    init_process_group("gloo")
    model = nn.parallel.DistributedDataParallel(nn.Linear(8, 4))
    model.register_comm_hook(None, default_hooks.allreduce_hook)
    expected = "its DistributedDataParallel has communication of its own"
    assert Regrouping().obstacle() == expected
    del model
    distributed.new_group([0])
    assert Regrouping().obstacle() == "it has several process groups"


def test_a_sharded_model_is_recognised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(gang, "joined", {})
    init_process_group("gloo")
    mesh = distributed.init_device_mesh("cpu", (1,))
    assert Regrouping().obstacle() == "its model is sharded"
    del mesh
