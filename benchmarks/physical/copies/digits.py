"""Train the CNN on scikit-learn's digits, and write its accuracy on those held out.

    python -m benchmarks.physical.copies.digits DIGITS.npz RESULT.json --seed N [--batch-size 256]

Digits are enlarged to 32 × 32, so that a step is as much work as one of ``cnn-256``.
"""

import argparse
import json
from pathlib import Path

import numpy as np
import torch
from benchmarks.physical.models.cnn import network
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from fairlead import job

_EPOCHS = 10**6
"""more than the job's steps need"""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("digits", type=Path)
    parser.add_argument("result", type=Path)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--batch-size", type=int, default=256)
    options = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(options.seed)
    torch.set_float32_matmul_precision("high")
    digits = {name: torch.from_numpy(part) for name, part in np.load(options.digits).items()}
    model = network(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    loader = DataLoader(
        TensorDataset(_images(digits["inputs"]), digits["labels"]),
        batch_size=options.batch_size,
        shuffle=True,
        drop_last=True,
        generator=torch.Generator().manual_seed(options.seed),
    )
    run = job.attach()
    run.register(model=model, optimizer=optimizer, loader=loader)
    for _ in run.epochs(_EPOCHS):
        for images, labels in run.steps(loader):
            scores = model(images.to(device, non_blocking=True))
            loss = functional.cross_entropy(scores, labels.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    model.eval()
    with torch.no_grad():
        scores = model(_images(digits["test_inputs"]).to(device))
    right = scores.argmax(dim=1).cpu() == digits["test_labels"]
    content = {"accuracy": right.float().mean().item(), "steps": run.steps_done}
    options.result.write_text(json.dumps(content), encoding="utf-8")


def _images(inputs: torch.Tensor) -> torch.Tensor:
    """Return digits of 8 × 8 as images of 32 × 32 with three channels."""
    small = inputs.reshape(-1, 1, 8, 8)
    return functional.interpolate(small, size=32, mode="bilinear").expand(-1, 3, -1, -1)


if __name__ == "__main__":
    main()
