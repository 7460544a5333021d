"""Claims of jobs: steps and speeds that are not possible count for nothing and are shown."""

import asyncio
import json
import math
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.e2e.support.live_server import LiveServer
from tests.support.waiting import until
from tests.unit.live.scripted_live import ScriptedLive, scripted_live

from fairlead.client import Client
from fairlead.core import Scheduler
from fairlead.core.queries import Queries
from fairlead.engines.base import Ended
from fairlead.live.leases.renewal import Renewal
from fairlead.live.speeds.measurements import measured
from fairlead.mechanisms.planner import Planner
from fairlead.model import events as ev
from fairlead.model.cluster import Cluster
from fairlead.model.commands import ComputePlan, Preempt
from fairlead.model.instance import Instance, InstanceJob
from fairlead.model.job import Job
from fairlead.model.snapshot import snapshot_of
from fairlead.model.speeds.table import SpeedKey, SpeedTable
from fairlead.policies.finish_time import FinishTime
from fairlead.policies.makespan import Makespan
from fairlead.server.config.scheduling import build_scheduling_config

HONEST = {"rank": 0, "started": 1, "steps": 1, "steps_per_s": 100.0}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    server = LiveServer(tmp_path_factory.mktemp("claims"), devices="v100=3", round_s=1.0).start()
    yield server
    server.clean_up()


class Liar:
    """A running job whose renewals a test sends."""

    def __init__(self, server: LiveServer, **fields: Any) -> None:
        self.server = server
        self.job = server.client.submit(["sleep", "600"], workload="big", **fields)["id"]
        self.lease, order = until(lambda: server.running_lease(self.job))
        url, token = f"http://127.0.0.1:{server.port}", order.environment["FAIRLEAD_JOB_TOKEN"]
        self._client = Client(url, token)

    def report(self, **claims: Any) -> tuple[int, Any]:
        """Return status and body of the answer to a renewal."""
        body = {**HONEST, **claims}
        status, _, text = self._client.raw("POST", f"/v1/leases/{self.lease}/renew", body)
        return status, json.loads(text)

    def view(self) -> dict[str, Any]:
        return self.server.client.job(self.job)

    def cancel(self) -> None:
        self._client.close()
        self.server.client.post(f"/v1/jobs/{self.job}/cancel?force=true")


@pytest.fixture
def liar(server: LiveServer) -> Iterator[Liar]:
    liar = Liar(server, steps=100_000)
    yield liar
    liar.cancel()


def test_impossible_claims_are_bounded_counted_and_shown(server: LiveServer, liar: Liar) -> None:
    began = time.monotonic()
    before = metric(server)
    assert liar.report(steps=50)[0] == 200
    assert liar.view()["suspicious_reports"] == 0
    assert liar.report(steps=60, steps_per_s=1000.0)[0] == 200  # 10 times the emulated speed
    view = liar.view()
    assert view["suspicious_reports"] == 1
    assert view["suspicion"] == "reports 1000 steps/s, at most 300 are possible"
    for claim in (99_999, 1e12, 1e15):
        assert liar.report(steps=claim)[0] == 200
    view = liar.view()
    assert 60 < view["steps_done"] <= 51 + 300 * (time.monotonic() - began + 16)
    assert liar.report(steps=0)[0] == 200
    assert liar.view()["steps_done"] >= view["steps_done"]
    assert view["suspicious_reports"] == 4
    assert view["state"] == "running"
    assert metric(server) == before + 4
    assert "suspicious_reports" in server.cli("job", liar.job).stdout
    log = (server.root / "server.log").read_text()
    assert log.count(f"lease.suspicious job={liar.job}") == 1


def metric(server: LiveServer) -> int:
    text = server.client.raw("GET", "/metrics")[2].decode()
    (line,) = (x for x in text.splitlines() if x.startswith("fairlead_suspicious_reports_total "))
    return int(float(line.split()[1]))


def test_claims_above_the_declared_steps_count_as_the_declared_steps(server: LiveServer) -> None:
    liar = Liar(server, steps=50)
    assert liar.report(steps=51)[0] == 200
    assert liar.view()["steps_done"] == 50
    assert liar.view()["suspicious_reports"] == 1
    liar.cancel()


@pytest.mark.parametrize(
    ("claims", "field"),
    [
        ({"steps": math.nan}, "steps"),
        ({"steps": math.inf}, "steps"),
        ({"steps": -1}, "steps"),
        ({"steps": 1e300}, "steps"),
        ({"steps": "many"}, "steps"),
        ({"steps": None}, "steps"),
        ({"steps": [1]}, "steps"),
        ({"steps_per_s": math.nan}, "steps_per_s"),
        ({"steps_per_s": -1.0}, "steps_per_s"),
        ({"steps_per_s": math.inf}, "steps_per_s"),
        ({"steps_per_s": {}}, "steps_per_s"),
        ({"started": 10**30}, "started"),
        ({"started": -1}, "started"),
        ({"rank": 1}, "rank"),
        ({"rank": -1}, "rank"),
        ({"metrics": {"loss": "low"}}, "metrics.loss"),
        ({"metrics": [1]}, "metrics"),
        ({"first_step_s": -5}, "first_step_s"),
        ({"unknown": 1}, "unknown"),
    ],
)
def test_garbage_is_refused_and_the_lease_stays_open(
    garbled: Liar, claims: dict[str, Any], field: str
) -> None:
    status, answer = garbled.report(**claims)
    assert status == 422
    assert answer["error"]["field"] == field
    assert field in answer["error"]["message"]
    assert garbled.report()[0] == 200
    assert garbled.view()["steps_done"] == 1


@pytest.fixture(scope="module")
def garbled(server: LiveServer) -> Iterator[Liar]:
    liar = Liar(server, steps=100_000)
    yield liar
    liar.cancel()


def test_an_honest_job_is_never_suspicious(server: LiveServer) -> None:
    out = server.root / "honest"
    command = [sys.executable, str(server.root / "train.py"), "300", str(out)]
    job = server.client.submit(command, workload="big", steps=300, directory=str(server.root))[
        "id"
    ]
    view = server.client.wait(job, timeout_s=120)
    assert (view["state"], view["steps_done"]) == ("finished", 300)
    assert (view["suspicious_reports"], view["suspicion"]) == (0, "")


def report(run: ScriptedLive, lease: int, steps: float, steps_per_s: float = 1.0) -> None:
    renewal = Renewal(rank=0, started=int(steps), steps=steps, steps_per_s=steps_per_s)
    assert run.live.renew(lease, renewal) is not None


def test_an_impossible_speed_is_not_measured(tmp_path: Path) -> None:
    async def attack() -> None:
        async with scripted_live(tmp_path) as run:
            honest, liar = await run.submit(steps=1000), await run.submit(steps=1000)
            leases = await run.lease(honest), await run.lease(liar)
            report(run, leases[0], 1.0, steps_per_s=10.0)  # believed: 1 step/s
            report(run, leases[1], 1.0, steps_per_s=10.1)
            events = measured(run.live.leases.values(), run.live.lease_use, run.live.clock.now())
            assert [event.lease for event in events if isinstance(event, ev.Measured)] == [
                leases[0]
            ]

    asyncio.run(attack())


def test_the_steps_of_a_checkpoint_are_claims_too(tmp_path: Path) -> None:
    async def attack() -> None:
        async with scripted_live(tmp_path) as run:
            job = await run.submit(steps=10**6, retries=9)
            lease = await run.lease(job)
            del run.engine.open[lease]
            run.engine._reports.put_nowait(Ended(lease, "left", 999_999.0))
            second = await run.lease(job)
            saved = run.live.queries.saved_steps(run.live.queries.job_number(job))
            assert 0 < saved < 1000
            assert run.live.suspicious_reports.by_job[job].reports == 1
            report(run, second, 999_999.0)  # where it says that it continues
            assert run.live.leases[second].steps < 1000

    asyncio.run(attack())


def test_a_job_continues_from_steps_that_the_server_never_heard_of(tmp_path: Path) -> None:
    """The server was down while the last lease made steps, and that lease was lost."""

    async def recover() -> None:
        async with scripted_live(tmp_path) as run:
            job = await run.submit(steps=10**6)
            lease = await run.lease(job)
            run.live.counters.tally[job].started_at = run.live.clock.now() - 3600.0
            run.engine.end(lease, "lost")
            second = await run.lease(job)
            report(run, second, 3600.0)
            assert run.live.leases[second].steps == 3600.0
            assert run.live.suspicious_reports.total == 0

    asyncio.run(recover())


def test_unknown_workloads_have_only_the_limit_of_all_jobs(tmp_path: Path) -> None:
    async def attack() -> None:
        speeds = SpeedTable({SpeedKey("m", 1, "v100"): 1.0}, assumed=1.0)
        async with scripted_live(tmp_path, devices="v100=1", speeds=speeds) as run:
            job = await run.submit(workload="new", steps=10**12)
            lease = await run.lease(job)
            report(run, lease, 5e5, steps_per_s=5e5)
            assert run.live.suspicious_reports.total == 0
            report(run, lease, 1e11)
            assert run.live.suspicious_reports.total == 1
            assert run.live.leases[lease].steps < 1e8

    asyncio.run(attack())


SPEEDS = SpeedTable({SpeedKey("m", 1, "v100"): 1.0})
BLIND = ("max-min", "fifo", "isolated", "oef", "tenant-max-min", "hierarchical", "trading",
         "throughput")  # fmt: skip


def decisions(policy: str, claimed: float) -> list[list[str]]:
    """Return rounds → jobs that run, where every running job claims the same steps."""
    config = build_scheduling_config(policy, None, 60.0, SPEEDS)
    scheduler: Scheduler[Any] = Scheduler(
        Cluster.of({"v100": 1}), SPEEDS, config.mechanism, plan_lead_s=0.0
    )
    queries, planner = Queries(scheduler), Planner(config.mechanism)
    for name in ("a", "b"):
        scheduler.handle(ev.JobSubmitted(0.0, Job(id=name, workload="m", total_steps=1e3)))
    rounds = []
    for at in (1.0, 61.0, 121.0, 181.0):
        for lease in queries.open_leases():
            scheduler.handle(ev.Progress(at, np.array([lease.number]), np.array([claimed])))
        commands = scheduler.handle(ev.PlanDue(at))
        (command,) = (c for c in commands if isinstance(c, ComputePlan))
        plan, memory = planner.plan(command.snapshot, command.memory)
        commands = scheduler.handle(ev.PlanReady(at, command.version, plan, memory))
        for leaving in [c.lease for c in commands if isinstance(c, Preempt)]:
            steps = np.full(len(leaving), claimed)
            scheduler.handle(ev.LeasesEnded(at, leaving, steps, "left"))
        rounds.append([lease.job_id for lease in queries.open_leases()])
    return rounds


@pytest.mark.parametrize("policy", BLIND)
def test_claims_change_no_decision_of_a_policy_that_reads_no_progress(policy: str) -> None:
    assert decisions(policy, 1.0) == decisions(policy, 900.0)
    assert all(decisions(policy, 1.0))


@pytest.mark.parametrize("policy", [FinishTime(), Makespan()])
def test_claiming_progress_lowers_the_share_where_long_jobs_get_more(policy: Any) -> None:
    honest = InstanceJob(
        id="a", speeds={"v100": 1.0}, steps_left=1000.0, elapsed_s=100.0, isolated_elapsed_s=100.0
    )
    ahead = replace(honest, steps_left=500.0, isolated_elapsed_s=600.0)
    other = replace(honest, id="b")
    shares = [
        policy.allocate(snapshot_of(Instance(Cluster.of({"v100": 1}), (job, other)))).share[0, 0]
        for job in (honest, ahead)
    ]
    assert shares[1] < shares[0]
