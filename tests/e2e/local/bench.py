"""A job's directories, training script and the local engine under test."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from tests.e2e.support.lease_server import LeaseServer

from fairlead.engines.base import Ended, LaunchOrder
from fairlead.engines.local.engine import LocalEngine
from fairlead.model.cluster import Cluster

TRAIN = """
import json, os, sys, time
from fairlead import job

class Model:
    def __init__(self): self.weight = 1.0
    def state_dict(self): return {"weight": self.weight}
    def load_state_dict(self, state): self.weight = state["weight"]

run, model, seen = job.attach(), Model(), {"steps": []}
run.register(model=model, seen=seen)
for i in run.steps(range(int(sys.argv[1]))):
    model.weight = (model.weight * 1.000123 + i) % 97.0
    seen["steps"].append(i)
    run.report(weight=model.weight)
    time.sleep(float(sys.argv[3]))
    if run.rank == 0 and len(sys.argv) > 4 and i == int(sys.argv[4]): os._exit(3)
with open(f"{sys.argv[2]}.{run.rank}", "w") as file:
    json.dump({"weight": model.weight, **seen}, file)
"""
CLUSTER = Cluster.of({"v100": 4})


class Bench:
    """One job's directories, and the engine under test."""

    def __init__(self, root: Path, server: LeaseServer) -> None:
        self.root, self.server = root, server
        (root / "train.py").write_text(TRAIN)
        self.engine = LocalEngine(root / "data", CLUSTER)
        self.reports: asyncio.Queue[Any] = asyncio.Queue()

    def order(
        self, lease: int, *command: object, gang: int = 1, job: str = "j", **more: Any
    ) -> LaunchOrder:
        default = (sys.executable, self.root / "train.py", 40, self.root / "out", 0.02)
        settings: dict[str, Any] = {
            "environment": {
                "FAIRLEAD_URL": self.server.url,
                "FAIRLEAD_JOB_TOKEN": "secret",
                "FAIRLEAD_LEASE_S": "30",
            },
            "total_steps": 40,
            "grace_s": 10.0,
            **more,
        }
        return LaunchOrder(
            lease=lease,
            job=job,
            command=tuple(map(str, command or default)),
            directory=str(self.root),
            devices=tuple(("node", i) for i in range(gang)),
            accelerators=("v100",) * gang,
            checkpoint_dir=str(self.root / job),
            log_dir=str(self.root / "logs"),
            **settings,
        )

    async def ended(self, timeout_s: float = 90.0) -> Ended:
        async def wait() -> Ended:
            async for report in self.engine.reports():
                if isinstance(report, Ended):
                    return report
            raise AssertionError

        return await asyncio.wait_for(wait(), timeout_s)

    def training(self, steps: int, step_s: float, *more: object) -> tuple[object, ...]:
        """Return the command of a training; one that must leave needs time for that."""
        return (sys.executable, self.root / "train.py", steps, self.root / "out", step_s, *more)

    async def train(self, *orders: LaunchOrder) -> list[Ended]:
        ends = []
        for order in orders:
            await self.engine.launch(order)
            ends.append(await self.ended())
        return ends

    def result(self, rank: int = 0) -> dict[str, Any]:
        result: dict[str, Any] = json.loads((self.root / f"out.{rank}").read_text())
        return result


def uninterrupted(steps: int) -> float:
    weight = 1.0
    for i in range(steps):
        weight = (weight * 1.000123 + i) % 97.0
    return weight
