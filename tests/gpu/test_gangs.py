"""Gangs with their state on a GPU park, return and change their size with the same processes.

The ranks of a gang share one GPU here, so they talk by gloo: NCCL refuses two ranks on one GPU,
and is tried with a gang of one. ``python -m pytest -s tests/gpu/test_gangs.py`` prints the seconds
for which the gang makes no step at each switch.
"""

import asyncio
import json
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.local.test_parked_gangs import GangBench
from tests.e2e.support.lease_server import LeaseServer
from tests.support.waiting import eventually

from fairlead.engines.base import LaunchOrder

pytest.importorskip("torch")
pytestmark = pytest.mark.gpu

STEPS, STEPS_PER_LEASE = 240, 40
WIDTH = 1024
TRAIN = f"""import json, os, sys, time
import torch
from torch import nn
from fairlead import job
from fairlead.job.torch import init_process_group

backend, out = sys.argv[1:]
device = "cuda" if torch.cuda.is_available() else "cpu"
run = job.attach()
run.on_resize()
init_process_group(backend)
torch.manual_seed(0)
model = nn.Sequential(*(nn.Linear({WIDTH}, {WIDTH}) for _ in range(8))).to(device)
model = nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=True)
history = {{"losses": [], "ranks": [], "leases": [], "began": [], "ended": [], "processes": []}}
run.register(model=model, optimizer=optimizer, history=history)
for step in run.steps(range({STEPS})):
    while os.path.exists(f"{{out}}.{{step}}.hold"):
        time.sleep(0.01)
    began = time.monotonic()
    batch = torch.randn(64, {WIDTH}, generator=torch.Generator().manual_seed(step)).to(device)
    optimizer.zero_grad()
    loss = (model(batch[run.rank :: run.world_size]) - 1.0).square().mean()
    loss.backward()
    optimizer.step()
    whole = loss.detach() / run.world_size
    torch.distributed.all_reduce(whole)
    now = dict(losses=whole.item(), ranks=run.world_size, leases=run.lease)
    now |= dict(began=began, ended=time.monotonic(), processes=os.getpid())
    for name, value in now.items():
        history[name].append(value)
with open(f"{{out}}.{{run.rank}}", "w") as file:
    json.dump(history, file)
"""


def _train(root: Path, backend: str, *gangs: int, early: bool = False) -> dict[str, list[Any]]:
    """Return the history of rank 0 of a gang that has these sizes under its leases.

    ``early``: new ranks start while the others train.
    """
    root.mkdir()
    (root / "gang.py").write_text(TRAIN, encoding="ascii")
    server = LeaseServer()

    async def run() -> None:
        bench = GangBench(root, server)
        command = [sys.executable, root / "gang.py", backend, root / "result"]
        for lease, gang in enumerate(gangs, 1):
            order = bench.order(lease, *command, gang=gang, total_steps=None, grace_s=60.0)
            if lease < len(gangs):
                if early and gangs[lease] > gang:
                    await _start_new_ranks(bench, order, gangs[lease])
                end = await bench.preempt(order, after=STEPS_PER_LEASE)
                assert (end.ending, end.parked) == ("left", True), end
            else:
                await bench.engine.launch(order)
                end = await bench.ended(120.0)
                assert end.ending == "finished", end
            assert end.resumed == (lease > 1)
        await bench.engine.close()

    try:
        asyncio.run(run())
    finally:
        server.close()
    history: dict[str, list[Any]] = json.loads((root / "result.0").read_text(encoding="ascii"))
    _print_switches(f"{backend}, new ranks early" if early else backend, gangs, history)
    assert len(history["losses"]) == STEPS
    assert len(set(history["processes"])) == 1
    return history


async def _start_new_ranks(bench: GangBench, order: LaunchOrder, gang: int) -> None:
    """Launch a lease, and return once the new ranks of the next one wait for it."""
    first = bench.saved_steps(order)
    hold = bench.root / f"result.{first + 2}.hold"  # else the gang could end before they start
    hold.touch()
    await bench.engine.launch(order)
    renewals = bench.server.renewals
    await eventually(lambda: renewals and renewals[-1]["steps"] > first)
    larger = bench.order(0, *order.command, gang=gang, total_steps=None, grace_s=60.0)
    await bench.engine.prepare(larger)
    await eventually(lambda: not bench.engine.is_growing(order.lease))
    assert bench.engine.prepared_jobs(), "the new ranks have ended"
    hold.unlink()


def _print_switches(backend: str, gangs: tuple[int, ...], history: dict[str, list[Any]]) -> None:
    steps = zip(history["leases"], history["began"], history["ended"], strict=True)
    idle_s = [b[1] - a[2] for a, b in pairwise(steps) if a[0] != b[0]]
    sizes = " → ".join(map(str, gangs))
    row = ", ".join(f"{seconds:.2f}" for seconds in idle_s)
    print(f"\n{backend}, ranks {sizes}: s without a step at each switch: {row}")  # noqa: T201  # the result


@pytest.mark.parametrize(("backend", "gang"), [("gloo", 2), ("nccl", 1)])
def test_a_gang_parks_and_returns_with_the_same_bits(
    tmp_path: Path, backend: str, gang: int
) -> None:
    parked = _train(tmp_path / "parked", backend, *[gang] * 4)
    whole = _train(tmp_path / "whole", backend, gang)
    assert parked["losses"] == whole["losses"]


@pytest.mark.parametrize("early", [False, True])
def test_a_gang_that_grows_and_shrinks_trains_as_one_process_would(
    tmp_path: Path, early: bool
) -> None:
    resized = _train(tmp_path / "resized", "gloo", 1, 2, 1, 2, early=early)
    assert set(resized["ranks"]) == {1, 2}
    whole = _train(tmp_path / "whole", "gloo", 1)
    assert resized["losses"] == pytest.approx(whole["losses"], rel=1e-3)
