"""Searches: trials that are removed while their learning curves are read."""

import asyncio
import json
from pathlib import Path

import pytest
from tests.unit.live.scripted_live import scripted_live

from fairlead.live.history.job_history import JobHistory
from fairlead.server.access.tokens import Principal
from fairlead.server.api.searches.messages import SearchTrials
from fairlead.server.api.searches.routes import list_searches, search_trials


def test_a_trial_that_is_removed_meanwhile_keeps_its_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene() -> None:
        async with scripted_live(tmp_path) as site:
            live = site.live
            jobs = [await site.submit(tenant="red", multijob="lr") for _ in range(2)]
            for job in jobs:
                live.history.results.update_metrics(job, {"loss": 0.5})
            read = live.history.history

            async def remove_and_read(job: str) -> JobHistory:
                live.specs.pop(jobs[1], None)
                return await read(job)

            monkeypatch.setattr(live.history, "history", remove_and_read)
            reader = Principal("ann", "tenant", "red")
            answer = await search_trials(live, reader, tenant="red", name="lr")
            shown = SearchTrials(**json.loads(bytes(answer.body)))
            assert [trial.job for trial in shown.trials] == jobs
            assert (shown.metric, shown.search.trials) == ("loss", 2)
            (listed,) = await list_searches(live, reader)
            assert (listed.name, listed.trials) == ("lr", 1)
            assert await list_searches(live, Principal("bob", "tenant", "blue")) == []

    asyncio.run(scene())
