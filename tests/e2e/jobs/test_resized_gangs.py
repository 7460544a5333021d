"""A DDP gang that parks and changes its size, on a server that is killed meanwhile."""

import json
import sys
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.e2e.support.live_server import LiveServer
from tests.kills.invariants import CheckpointMonitor
from tests.support.waiting import until

from fairlead import failpoints
from fairlead.client import TERMINAL_STATES, ServerError
from fairlead.engines.keeper import lease_dir

POINTS = (
    *("keeper.growth.ready", "job.park.allowed"),
    *("keeper.growth.admitted", "job.park.joined", "server.growth.requested"),
)
"""new ranks ready; parking; before and after its members regroup with them; new ranks requested"""
_FIRST_SUCCESSOR = 1 << 52
"""numbers from here on are those of processes that wait for a lease"""
SPEEDS = """workload,gang,accelerator,placement,partner,steps_per_s,partner_steps_per_s
elastic,1,k80,,,20,
elastic,2,k80,,,40,
other,1,k80,,,1,
"""
TRAIN = """
import json, os, sys
import torch
from itertools import count
from fairlead import job
from fairlead.job.torch import init_process_group

enough, out = sys.argv[1:]
run = job.attach()
run.on_resize()
init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1, bias=False))
torch.nn.init.zeros_(model.module.weight)
optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
seen = {"steps": [], "sizes": []}
run.register(model=model, optimizer=optimizer, seen=seen)
for step in run.steps(count()):
    if run.rank == 0:
        with open(f"{out}.trace", "a") as file:
            file.write(f"{run.lease} {step}\\n")
    optimizer.zero_grad()
    model(torch.ones(1, 1)).sum().backward()
    optimizer.step()
    seen["steps"].append(step)
    seen["sizes"].append(run.world_size)
    is_enough = torch.tensor(float(os.path.exists(enough)))
    torch.distributed.all_reduce(is_enough)
    if is_enough:
        break
with open(f"{out}.{run.rank}", "w") as file:
    json.dump({**seen, "weight": model.module.weight.item()}, file)
"""
"""every step takes 1 from the weight, in a gang of any size"""


@pytest.mark.slow
def test_a_dying_server_costs_a_gang_no_step_while_it_parks_regroups_and_changes_its_size(
    own_server: LiveServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    if find_spec("torch") is None:
        pytest.skip("needs PyTorch")
    server, root = own_server, own_server.root
    crashes, enough, out = root / "crashes", root / "enough", root / "out"
    trace = root / "out.trace"
    crashes.mkdir()
    monkeypatch.setenv(failpoints.VARIABLE, str(crashes))
    server.devices, server.round_s = "k80=2", 1.0
    server.extra = ("--policy", "gandiva:grow-after-s=0.1", "--offload-memory", "8")
    (root / "speeds.csv").write_text(SPEEDS)
    (root / "train.py").write_text(TRAIN)
    server.start()
    monitor = CheckpointMonitor(server.data / "jobs")
    command = [sys.executable, "train.py", str(enough), str(out)]
    variables = {failpoints.VARIABLE: str(crashes)}
    settings = {"directory": str(root), "min_gang": 1, "max_gang": 2, "environment": variables}
    job = str(server.client.submit(command, workload="elastic", **settings)["id"])
    for point in POINTS:
        size, ticket = 1 if _others(server) else 2, crashes / point
        until(lambda: _trains_on(server, job, size, trace), point, 120.0)  # noqa: B023
        _arm(server, ticket)
        # A gang that a server has adopted does not park, and one whose new ranks start slowly does
        # not wait for them: it passes the point at a later change.
        deadline = time.monotonic() + 300.0
        while ticket.exists():
            assert time.monotonic() < deadline, point
            size = _change_size(server)
            until(
                lambda: not ticket.exists() or _trains_on(server, job, size, trace),  # noqa: B023
                *(point, 120.0),
            )
        until(lambda: server.process is not None and server.process.poll() is not None, point)
        server.start()
    enough.touch()
    assert server.client.wait(job, timeout_s=240.0)["state"] == "finished"
    monitor.stop()
    assert monitor.complaints == []
    lines = [line.split() for line in trace.read_text().splitlines()]
    leases, steps = zip(*((int(lease), int(step)) for lease, step in lines), strict=True)
    assert [*leases] == sorted(leases)
    assert [*steps] == [*range(len(steps))]  # none was lost, and none made again
    result = json.loads(Path(f"{out}.0").read_text())
    assert (result["steps"], result["weight"]) == ([*steps], -float(len(steps)))
    assert {*result["sizes"]} == {1, 2}


def _others(server: LiveServer) -> list[str]:
    """Return the jobs for which the gang must be small."""
    jobs = [one for one in server.client.get("/v1/jobs") if one["workload"] == "other"]
    return [str(one["id"]) for one in jobs if one["state"] not in TERMINAL_STATES]


def _change_size(server: LiveServer) -> int:
    """Let another job come or go; return the devices that this leaves to the gang."""
    others: list[str] = []
    with suppress(ServerError):  # the server may die before it answers
        others = _others(server)
        if others:
            server.client.cancel(others[0])
        else:
            server.client.submit(["sleep", "1000"], workload="other")
    return 2 if others else 1


def _trains_on(server: LiveServer, job: str, size: int, trace: Path) -> bool:
    """Return whether the last step was made under the newest lease, on this many devices."""
    lines = trace.read_text().splitlines() if trace.exists() else []
    sizes = {}
    for lease, directory in lease_dir.list_leases(server.data / "leases").items():
        with suppress(FileNotFoundError):  # the server removes it after the lease
            order = lease_dir.read_order(directory)
            if order.job == job and order.lease < _FIRST_SUCCESSOR:
                sizes[lease] = len(order.devices)
    newest = max(sizes, default=-1)
    return bool(lines) and int(lines[-1].split()[0]) == newest and sizes[newest] == size


def _arm(server: LiveServer, ticket: Path) -> None:
    """Kill the server once a process passes a point."""
    assert server.process is not None
    made = ticket.with_suffix(".new")
    made.write_text(str(server.process.pid))
    made.rename(ticket)
