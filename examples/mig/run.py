"""Share one GPU, partitioned into MIG devices of three sizes, among real training jobs.

Measures the speed of each workload on each accelerator, then runs the same jobs twice, with a
policy that uses these speeds and with one that ignores them, and writes the results.

``python run.py OUT.json [ROUND_S [JOB_S]]``: a job takes JOB_S seconds alone on the largest
device; needs a GPU partitioned by ``nvidia-smi mig`` (see README.md).
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from fairlead.client import Client, ServerError
from fairlead.engines.local.gpus.gpu import Gpu
from fairlead.engines.local.gpus.inventory import find_gpus

HERE = Path(__file__).parent
WIDTHS = {"small": 512, "medium": 2048, "large": 4096}
PROBE = """
import sys, time, torch
width = int(sys.argv[1])
model = torch.nn.Sequential(*[torch.nn.Linear(width, width) for _ in range(8)]).cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
data = torch.randn(64, width, device="cuda")
def step():
    optimizer.zero_grad(set_to_none=True)
    torch.nn.functional.mse_loss(model(data), data).backward()
    optimizer.step()
for _ in range(20): step()
torch.cuda.synchronize(); began, steps = time.time(), 0
while time.time() - began < 3.0:
    for _ in range(10): step()
    torch.cuda.synchronize(); steps += 10
print(steps / (time.time() - began))
"""


def measure(gpus: tuple[Gpu, ...]) -> dict[str, dict[str, float]]:
    """Return workload → accelerator → steps per second, each measured alone."""
    first = {gpu.accelerator: gpu for gpu in reversed(gpus)}
    speeds: dict[str, dict[str, float]] = {}
    for name, width in WIDTHS.items():
        speeds[name] = {}
        for accelerator, gpu in first.items():
            probe = subprocess.run(
                [sys.executable, "-c", PROBE, str(width)],
                env={**os.environ, "CUDA_VISIBLE_DEVICES": gpu.uuid},
                capture_output=True,
                text=True,
                check=True,
            )
            steps_per_s = float(probe.stdout)
            speeds[name][accelerator] = steps_per_s
            print(f"{name:8} {accelerator:16} {steps_per_s:8.1f} steps/s", flush=True)
    return speeds


def run(
    policy: str, round_s: float, job_s: float, speeds: dict[str, dict[str, float]]
) -> dict[str, object]:
    """Serve the jobs under a policy and return the results."""
    data = Path(tempfile.mkdtemp(prefix="fairlead-mig-"))
    rows = ["workload,gang,accelerator,placement,partner,steps_per_s,partner_steps_per_s"]
    rows += [f"{w},1,{k},,,{v}," for w, row in speeds.items() for k, v in row.items()]
    (data / "speeds.csv").write_text("\n".join(rows) + "\n")
    command = [sys.executable, "-m", "fairlead", "serve", "--data", str(data), "--port", "8655"]
    command += ["--round", str(round_s), "--policy", policy, "--speeds", str(data / "speeds.csv")]
    with (data / "log").open("ab") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        client = connect(data)
        ids = []
        for name, width in list(WIDTHS.items()) * 2:
            steps = int(job_s * max(speeds[name].values()))
            job = client.submit(
                [sys.executable, str(HERE / "train.py"), str(width), str(steps)],
                workload=name,
                steps=steps,
                name=name,
            )
            ids.append(job["id"])
        jobs = [client.wait(job_id, timeout_s=400) for job_id in ids]
    finally:
        server.terminate()
        server.wait(30)
    first = min(job["submitted_at"] for job in jobs)
    spans = [job["ended_at"] - job["submitted_at"] for job in jobs]
    return {
        "policy": policy,
        "mean_completion_s": sum(spans) / len(spans),
        "makespan_s": max(job["ended_at"] for job in jobs) - first,
        "exact_steps": all(job["steps_done"] == job["total_steps"] for job in jobs),
        "preemptions": sum(job["preemptions"] for job in jobs),
        "jobs": [
            {
                key: job[key]
                for key in ("name", "state", "steps_done", "total_steps", "preemptions",
                            "accelerators_used", "leases")
            }
            for job in jobs
        ],
    }  # fmt: skip


def connect(data: Path) -> Client:
    """Return a client as soon as the server answers."""
    for _ in range(200):
        try:
            client = Client("http://127.0.0.1:8655", (data / "admin.token").read_text())
            client.get("/v1/jobs")
            return client
        except (OSError, ServerError):
            time.sleep(0.2)
    raise SystemExit((data / "log").read_text()[-2000:])


def main() -> None:
    gpus, _ = find_gpus()
    if len({gpu.accelerator for gpu in gpus}) < 2:
        sys.exit("only one accelerator: partition the GPU with nvidia-smi mig first")
    speeds = measure(gpus)
    round_s = float(sys.argv[2]) if len(sys.argv) > 2 else 20.0
    job_s = float(sys.argv[3]) if len(sys.argv) > 3 else 40.0
    runs = [run(policy, round_s, job_s, speeds) for policy in ("max-min", "max-min:agnostic")]
    results = {"devices": [gpu.accelerator for gpu in gpus], "speeds": speeds, "runs": runs}
    Path(sys.argv[1]).write_text(json.dumps(results, indent=1))
    for result in runs:
        print(json.dumps({k: v for k, v in result.items() if k != "jobs"}))


if __name__ == "__main__":
    main()
