"""One job in three copies on devices of unequal speed, against the same job on the fastest.

    python -m pip install scikit-learn
    python -m benchmarks.live.copies [--seeds 5] [--steps 6000] [--framework torch] [--json]
    python -m benchmarks.live.copies --write-digits DIGITS.npz [--held-out 450]

Trains a small network on the digits of scikit-learn under a real server with the policy hadare and
three emulated nodes. For every seed the job runs alone on the fastest device, then in three copies
that are averaged at the end of every round. Prints the accuracy on held-out digits and the time
from the first start to the end of the job. The network is written in NumPy, whose processes start
fast, or in PyTorch. ``--write-digits`` only writes the digits, for ``benchmarks.physical.copies``.
"""

import argparse
import contextlib
import json
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from fairlead.client import Client, ServerError

SPEEDS = {"v100": 60.0, "p100": 40.0, "k80": 20.0}
"""accelerator → steps per second"""
ROUND_S = 30.0
NUMPY = """
import json, sys
import numpy as np
from fairlead import job

seed, result = int(sys.argv[1]), sys.argv[2]
digits, rng = dict(np.load("digits.npz")), np.random.default_rng(seed)
model = {
    "w1": rng.normal(0.0, 0.15, (64, 64)), "b1": np.zeros(64),
    "w2": rng.normal(0.0, 0.15, (64, 10)), "b2": np.zeros(10),
}
momenta = {name: np.zeros_like(value) for name, value in model.items()}
run = job.attach()
run.register(model=model, momenta=momenta)

def forward(inputs):
    hidden = np.maximum(inputs @ model["w1"] + model["b1"], 0.0)
    return hidden, hidden @ model["w2"] + model["b2"]

def gradients(inputs, labels):
    hidden, scores = forward(inputs)
    error = np.exp(scores - scores.max(axis=1, keepdims=True))
    error /= error.sum(axis=1, keepdims=True)
    error[np.arange(len(labels)), labels] -= 1.0
    error /= len(labels)
    back = (error @ model["w2"].T) * (hidden > 0.0)
    return {"w1": inputs.T @ back, "b1": back.sum(0), "w2": hidden.T @ error, "b2": error.sum(0)}

for epoch in run.epochs(1_000_000):
    order = np.random.default_rng((seed, epoch)).permutation(len(digits["labels"]))
    for start in run.steps(range(0, len(order), 16)):
        batch = order[start : start + 16]
        for name, slope in gradients(digits["inputs"][batch], digits["labels"][batch]).items():
            momenta[name] = 0.9 * momenta[name] + slope
            model[name] = model[name] - 0.02 * momenta[name]
right = forward(digits["test_inputs"])[1].argmax(axis=1) == digits["test_labels"]
with open(result, "w") as file:
    json.dump({"accuracy": float(right.mean()), "steps": run.steps_done}, file)
"""
TORCH = """
import json, sys
import numpy as np
import torch
from torch.utils.data import DataLoader, TensorDataset
from fairlead import job

seed, result = int(sys.argv[1]), sys.argv[2]
torch.set_num_threads(1)
torch.manual_seed(seed)
digits = {name: torch.from_numpy(part) for name, part in np.load("digits.npz").items()}
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
samples = TensorDataset(digits["inputs"], digits["labels"])
order = torch.Generator().manual_seed(seed)
loader = DataLoader(samples, batch_size=16, shuffle=True, generator=order)
run = job.attach()
run.register(model=model, optimizer=optimizer, loader=loader)
for epoch in run.epochs(1_000_000):
    for inputs, labels in run.steps(loader):
        loss = torch.nn.functional.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
with torch.no_grad():
    right = model(digits["test_inputs"]).argmax(dim=1) == digits["test_labels"]
with open(result, "w") as file:
    json.dump({"accuracy": right.float().mean().item(), "steps": run.steps_done}, file)
"""


def write_digits(path: Path, held_out: int) -> None:
    """Write scikit-learn's digits, in a fixed random order, as training and held-out parts."""
    from sklearn.datasets import load_digits  # noqa: PLC0415  # installed for this benchmark only

    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.target))
    inputs, labels = (digits.data[order] / 16.0).astype(np.float32), digits.target[order]
    np.savez(
        path,
        inputs=inputs[held_out:],
        labels=labels[held_out:],
        test_inputs=inputs[:held_out],
        test_labels=labels[:held_out],
    )


@contextlib.contextmanager
def served(root: Path, round_s: float, offload_gib: float) -> Iterator[Client]:
    """Run a server with a node for each accelerator; yield its client."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    rows = [f"digits,1,{name},{speed}\n" for name, speed in SPEEDS.items()]
    (root / "speeds.csv").write_text("workload,gang,accelerator,steps_per_s\n" + "".join(rows))
    devices = ",".join(f"{name}=1" for name in SPEEDS)
    command = [sys.executable, "-m", "fairlead", "serve", "--data", str(root / "data")]
    command += ["--port", str(port), "--policy", "hadare:restart-s=5", "--round", str(round_s)]
    command += ["--emulate", devices, "--speeds", str(root / "speeds.csv")]
    command += ["--offload-memory", str(offload_gib)]
    with (root / "server.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        token = root / "data" / "admin.token"
        _wait(token.exists)
        client = Client(f"http://127.0.0.1:{port}", token.read_text())
        _wait(lambda: _is_up(client))
        yield client
    finally:
        process.terminate()
        process.wait()


def trained(client: Client, root: Path, seed: int, steps: int, copies: int) -> dict[str, float]:
    """Train once; return accuracy, steps and seconds."""
    result = f"{seed}-{copies}.json"
    command = [sys.executable, "train.py", str(seed), result]
    where = {"max_copies": copies} if copies > 1 else {"accelerators": ["v100"]}
    job = client.submit(command, directory=str(root), workload="digits", steps=steps, **where)
    view: dict[str, Any] = {}

    def ended() -> bool:
        view.update(client.get(f"/v1/jobs/{job.id}"))
        return view["state"] not in ("queued", "running")

    _wait(ended, limit_s=3600.0)
    if view["state"] != "finished":
        raise SystemExit(f"job {job.id} {view['state']}: {view['message']}")
    measured: dict[str, float] = json.loads((root / result).read_text())
    return {**measured, "seconds": view["ended_at"] - view["started_at"]}


def _wait(condition: Any, limit_s: float = 120.0) -> None:
    end = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > end:
            raise SystemExit("timeout")
        time.sleep(0.2)


def _is_up(client: Client) -> bool:
    with contextlib.suppress(ServerError):
        client.get("/v1/jobs")
        return True
    return False


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=6000)
    parser.add_argument("--framework", choices=("numpy", "torch"), default="numpy")
    parser.add_argument("--round", type=float, default=ROUND_S, metavar="S")
    parser.add_argument("--offload-memory", type=float, default=8.0, metavar="GIB")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write-digits", type=Path, metavar="FILE")
    parser.add_argument(
        "--held-out", type=int, default=450, metavar="N", help="digits that no job trains on"
    )
    options = parser.parse_args()
    if options.write_digits is not None:
        write_digits(options.write_digits, options.held_out)
        return 0
    runs: dict[str, list[dict[str, float]]] = {"alone": [], "copies": []}
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "train.py").write_text(TORCH if options.framework == "torch" else NUMPY)
        write_digits(root / "digits.npz", options.held_out)
        with served(root, options.round, options.offload_memory) as client:
            for seed in range(options.seeds):
                for name, copies in (("alone", 1), ("copies", len(SPEEDS))):
                    runs[name].append(trained(client, root, seed, options.steps, copies))
                    print(f"seed {seed}, {name}: {runs[name][-1]}", file=sys.stderr, flush=True)
    if options.json:
        print(json.dumps(runs))
        return 0
    for name, each in runs.items():
        accuracy = [run["accuracy"] for run in each]
        spread = statistics.stdev(accuracy) if len(accuracy) > 1 else 0.0
        seconds = statistics.mean(run["seconds"] for run in each)
        mean = statistics.mean(accuracy)
        print(f"{name}: accuracy {mean:.4f} (standard deviation {spread:.4f}), {seconds:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
