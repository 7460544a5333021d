"""A preempted Hugging Face ``Trainer`` ends with the same bits as one that nothing interrupts."""

from pathlib import Path
from typing import Any

import pytest
from tests.unit.job.torch.trainers import (
    BATCH,
    EPOCHS,
    Noisy,
    Recording,
    check_preemptions,
    in_three_leases,
    layers,
    loss_of,
    torch,
)

transformers: Any = pytest.importorskip("transformers")
pytest.importorskip("accelerate")
pytestmark = pytest.mark.filterwarnings("ignore")  # transformers warns of a toy's settings

from fairlead.job.run import Run  # noqa: E402
from fairlead.job.torch.transformers import train  # noqa: E402


class Model(Recording, torch.nn.Module):
    """A model with dropout and a record of its batches."""

    def __init__(self) -> None:
        super().__init__()
        self.layers, self.seen = layers(), []

    def forward(self, x: Any, labels: Any = None) -> Any:
        del labels
        if self.training:
            self.seen.append(x.tolist())
        return {"loss": loss_of(self.layers, x)}


def collate(items: list[Any]) -> Any:
    """Return a batch, masked at random as language models need it."""
    x = torch.stack(items)
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


@in_three_leases
def test_three_preemptions_change_no_bit(
    workers: int, accumulated: int, preempted_after: tuple[int, ...], tmp_path: Path
) -> None:
    check_preemptions(fit, tmp_path, workers, accumulated, preempted_after)
