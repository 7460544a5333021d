"""A preempted Hugging Face ``Trainer`` ends with the same bits as one that nothing interrupts."""

from pathlib import Path
from typing import Any

import pytest
from tests.unit.job.torch.leases import train_in_leases

torch = pytest.importorskip("torch")
transformers: Any = pytest.importorskip("transformers")
pytest.importorskip("accelerate")
pytestmark = pytest.mark.filterwarnings("ignore")  # transformers warns of a toy's settings

from torch import nn  # noqa: E402  # needs PyTorch
from torch.utils import data  # noqa: E402

from fairlead.job.run import Run  # noqa: E402
from fairlead.job.torch.transformers import train  # noqa: E402

ITEMS, BATCH, EPOCHS = 22, 2, 3


class Noisy(data.Dataset):  # type: ignore[misc]  # PyTorch's types are not followed
    """Items with random augmentation."""

    def __len__(self) -> int:
        return ITEMS

    def __getitem__(self, index: int) -> Any:
        return {"x": torch.full((4,), float(index)) / ITEMS + 0.1 * torch.randn(4)}


class Model(nn.Module):  # type: ignore[misc]  # PyTorch's types are not followed
    """A model with dropout and a record of its batches."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.3), nn.Linear(4, 1))
        self.seen: list[Any] = []

    def get_extra_state(self) -> Any:
        return {"seen": self.seen}

    def set_extra_state(self, state: Any) -> None:
        self.seen = state["seen"]

    def forward(self, x: Any, labels: Any = None) -> Any:
        del labels
        if self.training:
            self.seen.append(x.tolist())
        return {"loss": ((self.layers(x) - x.sum(1, keepdim=True)) ** 2).mean()}


def collate(items: list[Any]) -> Any:
    """Return a batch, masked at random as language models need it."""
    x = torch.stack([item["x"] for item in items])
    return {"x": x * (torch.rand(x.shape) > 0.2)}


def fit(run: Run, root: Path, workers: int, accumulated: int) -> Any:
    arguments = transformers.TrainingArguments(
        output_dir=str(root / "out"),
        num_train_epochs=EPOCHS,
        per_device_train_batch_size=BATCH,
        gradient_accumulation_steps=accumulated,
        dataloader_num_workers=workers,
        dataloader_multiprocessing_context="fork" if workers else None,
        eval_strategy="steps",
        eval_steps=4,
        logging_steps=2,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        remove_unused_columns=False,
        disable_tqdm=True,
        seed=3,
    )
    torch.manual_seed(0)
    model = Model()
    trainer = transformers.Trainer(
        model,
        arguments,
        train_dataset=Noisy(),
        eval_dataset=Noisy(),
        data_collator=collate,
    )
    train(run, trainer)
    parameters = [value.tolist() for value in model.layers.state_dict().values()]
    history = [(entry["step"], entry.get("eval_loss")) for entry in trainer.state.log_history]
    return model.seen, parameters, history, trainer.state.global_step, run.steps_done


@pytest.mark.parametrize(
    ("workers", "accumulated", "preempted_after"),
    [(1, 1, (2, 11, 18)), (0, 3, (1, 4, 6))],
    ids=["in workers", "accumulating"],
)
def test_three_preemptions_change_no_bit(
    workers: int, accumulated: int, preempted_after: tuple[int, ...], tmp_path: Path
) -> None:
    """The second one falls between two epochs."""
    plain = fit(Run(), tmp_path, workers, accumulated)
    assert len(plain[0]) == EPOCHS * ITEMS // BATCH
    preempted = train_in_leases(
        lambda run: fit(run, tmp_path, workers, accumulated), tmp_path, preempted_after
    )
    for one, other in zip(preempted, plain, strict=True):
        assert one == other
