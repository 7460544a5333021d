"""Parked processes end with their node or job, and the engine forgets jobs that have ended."""

import asyncio
from collections.abc import Collection, Mapping
from pathlib import Path

from tests.support.waiting import eventually
from tests.unit.live.scripted_live import ScriptedEngine, scripted_live

from fairlead.model.cluster import Cluster


class RememberingEngine(ScriptedEngine):
    """An engine that remembers jobs until it must forget them."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self.remembered = {"of another server": ""}
        self.parked: dict[str, tuple[tuple[str, int], ...]] = {}
        self.ended: dict[str, bool] = {}
        """job whose parked processes were ended → whether because of a drained node"""

    def parked_jobs(self) -> Mapping[str, tuple[tuple[str, int], ...]]:
        return self.parked

    async def end_parked(self, job: str, *, drained: bool = False) -> None:
        self.ended[job] = drained
        self.parked.pop(job, None)

    def remembered_jobs(self) -> Collection[str]:
        return self.remembered.keys()

    async def forget_job(self, job: str) -> None:
        self.remembered.pop(job, None)


def test_an_engine_forgets_jobs_that_ended_or_are_unknown_and_keeps_the_others(
    tmp_path: Path,
) -> None:
    async def run() -> None:
        async with scripted_live(tmp_path, make_engine=RememberingEngine) as scripted:
            engine, live = scripted.engine, scripted.live
            assert isinstance(engine, RememberingEngine)
            finished, cancelled, running = [await scripted.submit() for _ in range(3)]
            engine.remembered |= dict.fromkeys((finished, cancelled, running), "a reason")
            await live.jobs.cancel(cancelled, "tester")
            engine.end(await scripted.lease(finished), "finished", steps=1.0)
            await eventually(lambda: [*engine.remembered] == [running])

    asyncio.run(run())


def test_parked_processes_end_if_one_of_their_nodes_is_drained_or_their_job_suspended(
    tmp_path: Path,
) -> None:
    async def run() -> None:
        async with scripted_live(tmp_path, make_engine=RememberingEngine) as scripted:
            engine, live = scripted.engine, scripted.live
            assert isinstance(engine, RememberingEngine)
            first, second = [(node.id, 0) for node in live.scheduler.cluster.nodes]
            spread, stays, suspended = [await scripted.submit() for _ in range(3)]
            engine.parked |= {spread: (first, second), stays: (first,), suspended: (second,)}
            await live.jobs.suspend(suspended, "tester")
            await eventually(lambda: suspended in engine.ended)
            await live.nodes.drain(second[0], "tester")
            await eventually(lambda: spread in engine.ended)
            assert engine.ended == {spread: True, suspended: False}
            assert [*engine.parked] == [stays]

    asyncio.run(run())
