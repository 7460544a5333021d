"""Live changes of the scheduling policy: leases stay, the log replays, refusals change nothing."""

import asyncio
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.waiting import eventually
from tests.unit.live.scripted_live import SPEEDS, ScriptedEngine, ScriptedLive, scripted_live

from fairlead.core import state_bytes
from fairlead.live.driver import Live
from fairlead.live.executors import WorkerThreads
from fairlead.live.journal import Journal
from fairlead.model.errors import InputError, ProtocolError
from fairlead.server.config.scheduling import changed_scheduling_config
from fairlead.store import Put, Store


async def switch(live: Live, **changes: Any) -> None:
    config = live.policy.config
    await live.policy.request(config, changed_scheduling_config(config, **changes), "operator")


def require_equal_replay(live: Live, copy: Path) -> None:
    """Require that a server that finds the present database reaches the same state."""
    copy.mkdir()
    with (
        sqlite3.connect(live.config.data / "fairlead.db") as source,
        sqlite3.connect(copy / "fairlead.db") as target,
    ):
        source.backup(target)
    store = Store(f"sqlite:///{copy}/fairlead.db")
    try:
        token = store.acquire("a replay")
        assert token is not None
        replayed = Live(store, ScriptedEngine(live.config.cluster), live.config, token)
        replayed._recover()
        assert state_bytes(replayed.scheduler) == state_bytes(live.scheduler)
        assert replayed.counters.saved() == live.counters.saved()
        assert replayed.policy.config.name == live.policy.config.name
    finally:
        store.close()


def test_running_jobs_keep_their_leases_and_the_log_replays(tmp_path: Path) -> None:
    async def scene() -> None:
        async with scripted_live(tmp_path) as site:
            live = site.live
            first, second = await site.submit(), await site.submit(gang=2)
            leases = {await site.lease(first), await site.lease(second)}
            await switch(live, policy="hadar", round_s=30.0)
            assert type(live.scheduler.mechanism).__name__ == "Hadar"
            before = live.scheduler.version
            await site.lease(await site.submit())
            assert live.scheduler.version > before, "the new mechanism has made no plan"
            assert leases <= {*site.engine.open}
            await live.write([])
            require_equal_replay(live, tmp_path / "copy")
            entry = live.store.audit_trail(limit=10)
            (change,) = [row for row in entry if row["action"] == "policy"]
            assert change["changes"] == {
                "policy": {"old": "max-min", "new": "hadar"},
                "round_s": {"old": 60.0, "new": 30.0},
            }
            third = changed_scheduling_config(live.policy.config, policy="srtf")
            with pytest.raises(ProtocolError, match="changed meanwhile"):
                await live.policy.request(live.config.scheduling, third, "operator")

    asyncio.run(scene())


class SlowWorkers(WorkerThreads):
    """Holds the first plan and all switches back until a test releases them."""

    def __init__(self) -> None:
        super().__init__()
        self.first_plan, self.switches = asyncio.Event(), asyncio.Event()
        self.planning, self.switching = asyncio.Event(), asyncio.Event()
        self._at_a_time = asyncio.Lock()

    async def plan(self, call: Callable[..., Any], *arguments: object) -> Any:
        async with self._at_a_time:
            if not self.planning.is_set():
                self.planning.set()
                await self.first_plan.wait()
            return await super().plan(call, *arguments)

    async def write(self, call: Callable[..., Any], *arguments: object) -> Any:
        if getattr(call, "__func__", None) is Journal.save_state:
            self.switching.set()
            await self.switches.wait()
        return await super().write(call, *arguments)


@pytest.mark.parametrize("ready", [True, False], ids=["plan-ready", "plan-without-end"])
def test_a_plan_of_the_former_mechanism_is_dropped(tmp_path: Path, ready: bool) -> None:
    """Its memory is of a type that no reader of the later log knows; it may also never end."""

    async def scene() -> None:
        workers = SlowWorkers()
        async with scripted_live(tmp_path, workers=workers) as site:
            live = site.live
            job = await site.submit()
            await workers.planning.wait()
            switching = asyncio.create_task(switch(live, policy="gandiva"))
            await workers.switching.wait()
            if ready:
                workers.first_plan.set()
                await eventually(lambda: not live.inbox.empty())
            workers.switches.set()
            await switching
            await site.lease(job)
            await live.write([])
            require_equal_replay(live, tmp_path / "copy")

    asyncio.run(scene())


def test_a_policy_under_which_a_job_could_never_run_is_refused(tmp_path: Path) -> None:
    async def scene() -> None:
        async with scripted_live(tmp_path) as site:
            live = site.live
            job = await site.submit(gang=2)
            await site.lease(job)
            await live.write([])
            before, documents = state_bytes(live.scheduler), live.store.documents("rules")
            config, entries = live.policy.config, len(live.store.audit_trail())
            table = "workload,gang,accelerator,steps_per_s\nm,1,v100,1\nm,2,v100,0\nm,2,k80,0\n"
            with pytest.raises(InputError, match=f"could never run: job '{job}'.*cancel the job"):
                await switch(live, speeds=table)
            assert live.policy.config is config
            assert state_bytes(live.scheduler) == before
            assert live.store.documents("rules") == documents
            assert len(live.store.audit_trail()) == entries

    asyncio.run(scene())


def test_the_last_decision_wins_after_a_restart(tmp_path: Path) -> None:
    def policy_in_force(site: ScriptedLive) -> tuple[str, bool]:
        return site.live.policy.config.policy, site.live.policy.change is not None

    async def scene() -> None:
        async with scripted_live(tmp_path, policy="max-min") as site:
            await site.lease(await site.submit())
            await switch(site.live, policy="fifo")
        async with scripted_live(tmp_path, policy="max-min") as site:
            assert policy_in_force(site) == ("fifo", True), "a restart keeps a live change"
            assert site.live.policy.config.beliefs == SPEEDS
        async with scripted_live(tmp_path, policy="hierarchical") as site:
            assert policy_in_force(site) == ("hierarchical", False), "other settings overrule it"
        async with scripted_live(tmp_path, policy="max-min") as site:
            assert policy_in_force(site) == ("max-min", False), "an overruled change is gone"
            await site.live.write([Put("policy", "live", '{"config": ')])
        async with scripted_live(tmp_path, policy="max-min") as site:
            assert policy_in_force(site) == ("max-min", False), "a damaged change is dropped"
            assert site.live.store.document("policy", "live") is None

    asyncio.run(scene())
