"""Train an MLP with PyTorch on the job's device.

``python train.py WIDTH STEPS``; under Fairlead it can be preempted, moved and resumed.
"""

import sys

import torch

from fairlead import job


def main() -> None:
    width, total = int(sys.argv[1]), int(sys.argv[2])
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    layers = [torch.nn.Linear(width, width) for _ in range(8)]
    model = torch.nn.Sequential(*layers).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    run = job.attach()
    run.register(model=model, optimizer=optimizer)
    data = torch.randn(64, width, device=device)
    for i in run.steps(range(total)):
        optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.functional.mse_loss(model(data), data)
        loss.backward()
        optimizer.step()
        if i % 20 == 0:
            torch.cuda.synchronize() if device == "cuda" else None
            run.report(loss=loss.item())


if __name__ == "__main__":
    main()
