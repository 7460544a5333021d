"""A preempted ``Trainer.fit`` ends with the same bits as one that nothing interrupts."""

from pathlib import Path
from typing import Any

import pytest
from tests.unit.job.torch.leases import train_in_leases

torch = pytest.importorskip("torch")
lightning: Any = pytest.importorskip("lightning")
pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning warns of a toy's settings

from torch.utils import data  # noqa: E402  # needs PyTorch

from fairlead.job.run import Run  # noqa: E402
from fairlead.job.torch.lightning import FairleadCallback  # noqa: E402

ITEMS, BATCH, EPOCHS = 22, 2, 3


class Noisy(data.Dataset):  # type: ignore[misc]  # PyTorch's types are not followed
    """Items with random augmentation."""

    def __len__(self) -> int:
        return ITEMS

    def __getitem__(self, index: int) -> Any:
        return torch.full((4,), float(index)) / ITEMS + 0.1 * torch.randn(4)


class Model(lightning.LightningModule):  # type: ignore[misc]  # Lightning's types are not followed
    """A model with dropout, a schedule of the validation loss, and a record of its batches."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(4, 4), torch.nn.Dropout(0.3), torch.nn.Linear(4, 1)
        )
        self.seen: list[Any] = []

    def get_extra_state(self) -> Any:
        return {"seen": self.seen}

    def set_extra_state(self, state: Any) -> None:
        self.seen = state["seen"]

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        self.seen.append((self.current_epoch, batch_idx, self.global_step, batch.tolist()))
        return ((self.layers(batch) - batch.sum(1, keepdim=True)) ** 2).mean()

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        del batch_idx
        self.log("loss", self.layers(batch).mean() + torch.rand(()))

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.Adam(self.parameters(), lr=0.1)
        scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": scheduler, "monitor": "loss"},
        }


def fit(run: Run, root: Path, workers: int, accumulated: int) -> Any:
    torch.manual_seed(0)
    model = Model()
    options = {"multiprocessing_context": "fork", "persistent_workers": True} if workers else {}
    trainer = lightning.Trainer(
        max_epochs=EPOCHS,
        accumulate_grad_batches=accumulated,
        callbacks=[FairleadCallback(run)],
        accelerator="cpu",
        default_root_dir=root,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    loader = data.DataLoader(Noisy(), BATCH, shuffle=True, num_workers=workers, **options)
    trainer.fit(model, loader, data.DataLoader(Noisy(), 11))
    rates = [group["lr"] for group in trainer.optimizers[0].param_groups]
    parameters = [value.tolist() for value in model.layers.state_dict().values()]
    return model.seen, parameters, rates, run.steps_done


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


def test_a_loader_without_a_length_is_refused(tmp_path: Path) -> None:
    class Stream(data.IterableDataset):  # type: ignore[misc]  # PyTorch's types are not followed
        def __iter__(self) -> Any:
            return iter(torch.ones(6, 4))

    trainer = lightning.Trainer(
        max_epochs=1,
        callbacks=[FairleadCallback(Run())],
        accelerator="cpu",
        default_root_dir=tmp_path,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        limit_val_batches=0,
    )
    with pytest.raises(TypeError, match="loader0: a loader without a length: expected"):
        trainer.fit(Model(), data.DataLoader(Stream(), 2))
