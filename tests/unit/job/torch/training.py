"""Training with every source of state: shuffling, workers, dropout, schedulers, averages."""

import hashlib
import json
import os
import random
import time
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # the first optimizer imports it: once, instead of in every process
from torch import distributed, nn
from torch.distributed import fsdp
from torch.utils import data

from fairlead import job
from fairlead.job.torch import GlobalBatchSampler, init_process_group

ITEMS, BATCH, EPOCHS = 64, 4, 3


class Noisy(data.Dataset):
    """Items with random augmentation, drawn in the workers."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(5)
        self.inputs = torch.randn(ITEMS, 8, generator=generator)
        self.targets = self.inputs.sum(1, keepdim=True)

    def __len__(self) -> int:
        return ITEMS

    def __getitem__(self, index: int) -> tuple[Any, Any, int]:
        noise = 0.05 * torch.randn(8) + 0.01 * random.random()
        return self.inputs[index] + noise, self.targets[index], index


def make_model() -> Any:
    return nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.2), nn.ReLU(), nn.Linear(16, 1))


def _attach(environment: dict[str, str]) -> job.Run:
    os.environ.update(environment)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    random.seed(0)
    return job.attach()


def _pause(run: job.Run) -> None:
    """Wait after a number of steps, if a test wants it, until a file exists."""
    until = os.environ.get("PAUSE_UNTIL")
    if until is not None and run.steps_done >= int(os.environ["PAUSE_AFTER"]):
        while not os.path.exists(until):
            time.sleep(0.005)


def train(kind: str, out: str, environment: dict[str, str]) -> None:
    """Train under a lease, or as a plain run, and write a digest of the result."""
    run = _attach(environment)
    gang = kind != "alone"
    if gang:
        init_process_group("gloo")
    model = make_model()
    if kind == "ddp":
        model = nn.parallel.DistributedDataParallel(model)
    elif kind == "fsdp":
        fsdp.fully_shard(model)
    elif kind == "flat":
        model = fsdp.FullyShardedDataParallel(model, device_id=torch.device("cpu"))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
    dataset = Noisy()
    sampler = data.DistributedSampler(dataset) if gang else None
    loader = data.DataLoader(
        dataset,
        batch_size=BATCH // 2 if gang else BATCH,
        shuffle=not gang,
        sampler=sampler,
        num_workers=2,
        multiprocessing_context="fork",
    )
    history: dict[str, Any] = {"losses": [], "indices": []}
    run.register(model=model, optimizer=optimizer, scheduler=scheduler, loader=loader)
    run.register(history=history)
    for epoch in run.epochs(EPOCHS):
        if sampler is not None:
            sampler.set_epoch(epoch)
        for inputs, targets, indices in run.steps(loader):
            loss = nn.functional.mse_loss(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            history["losses"].append(loss.item())
            history["indices"].append(indices.tolist())
            if run.steps_done % 7 == 3:
                run.checkpoint()
            _pause(run)
        scheduler.step()
    _write_result(Path(f"{out}.{os.environ['RANK']}"), model, history, scheduler)
    if gang:
        distributed.destroy_process_group()


def train_elastic(kind: str, out: str, environment: dict[str, str]) -> None:
    """Train global batches in a gang of any size; write the items and the loss of each step."""
    run = _attach(environment)
    run.on_resize()
    init_process_group("gloo")
    dataset = Noisy()
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
    if kind == "ddp":
        model = nn.parallel.DistributedDataParallel(model)
    elif run.world_size > 1:
        fsdp.fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    batches = GlobalBatchSampler(dataset, 5)
    loader = data.DataLoader(dataset, batch_sampler=batches)
    history: dict[str, Any] = {"losses": [], "items": [], "ranks": []}
    run.register(model=model, optimizer=optimizer, loader=loader, history=history)
    for _ in run.epochs(2):
        for _, _, indices in run.steps(loader):
            inputs, targets = dataset.inputs[indices], dataset.targets[indices]
            loss = batches.weight * nn.functional.mse_loss(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            used = torch.zeros(ITEMS + 1)
            used[indices] = float(batches.weight > 0)
            used[-1] = loss.item() / run.world_size
            distributed.all_reduce(used)
            history["losses"].append(used[-1].item())
            history["items"].append(used[:-1].nonzero().flatten().tolist())
            assert used[:-1].max() == 1
            history["ranks"].append(run.world_size)
            _pause(run)
    whole = [getattr(one, "full_tensor", lambda p=one: p)() for one in model.parameters()]
    history["parameters"] = [value for one in whole for value in one.flatten().tolist()]
    Path(f"{out}.{os.environ['RANK']}").write_text(json.dumps(history))
    distributed.destroy_process_group()


def _write_result(path: Path, model: Any, history: dict[str, Any], scheduler: Any) -> None:
    digest = hashlib.sha256()
    for parameter in model.parameters():
        local = getattr(parameter, "to_local", lambda p=parameter: p)()
        digest.update(local.detach().numpy().tobytes())
    rate = scheduler.get_last_lr()
    path.write_text(json.dumps({"parameters": digest.hexdigest(), "rate": rate, **history}))
