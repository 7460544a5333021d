"""A preempted ``Trainer.fit`` ends with the same bits as one that nothing interrupts."""

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

lightning: Any = pytest.importorskip("lightning")
pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning warns of a toy's settings

from torch.utils import data  # noqa: E402  # needs PyTorch

from fairlead.job.run import Run  # noqa: E402
from fairlead.job.torch.lightning import FairleadCallback  # noqa: E402


class Model(Recording, lightning.LightningModule):
    """A model with dropout, a schedule of the validation loss, and a record of its batches."""

    def __init__(self) -> None:
        super().__init__()
        self.layers, self.seen = layers(), []

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        self.seen.append((self.current_epoch, batch_idx, self.global_step, batch.tolist()))
        return loss_of(self.layers, batch)

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


@in_three_leases
def test_three_preemptions_change_no_bit(
    workers: int, accumulated: int, preempted_after: tuple[int, ...], tmp_path: Path
) -> None:
    check_preemptions(fit, tmp_path, workers, accumulated, preempted_after)


def test_a_loader_without_a_length_is_refused(tmp_path: Path) -> None:
    class Stream(data.IterableDataset):
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
