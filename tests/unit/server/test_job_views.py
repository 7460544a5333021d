"""Views of jobs: the devices that copies and mixed gangs hold."""

import asyncio
from pathlib import Path

from tests.support.waiting import eventually
from tests.unit.live.scripted_live import ScriptedLive, scripted_live
from tests.unit.server.test_policy_room import context

from fairlead.server.access.tokens import Principal
from fairlead.server.api.routes.tenants import explain
from fairlead.server.api.views import job_row


async def held(site: ScriptedLive, job: str) -> dict[str, int]:
    """Return the devices that a job holds, once they are two."""

    def both() -> dict[str, int]:
        row = job_row(site.live, site.live.queries.job_number(job))
        counts: dict[str, int] = row["accelerators_held"]
        return counts if row["devices"] == 2 else {}

    return await eventually(both, "the job does not hold two devices")


def test_a_job_in_copies_shows_the_accelerators_of_all_its_copies(tmp_path: Path) -> None:
    async def scene() -> None:
        policy = "hadare:restart-s=0.1"
        async with scripted_live(tmp_path, devices="v100=1,k80=1", policy=policy) as site:
            job = await site.submit(tenant="red", steps=1000, max_copies=2)
            assert await held(site, job) == {"v100": 1, "k80": 1}
            red = await explain("red", context(site.live), Principal("ann", "admin"))
            assert red.devices == {"v100": 1, "k80": 1}

    asyncio.run(scene())


def test_a_mixed_gang_shows_all_its_accelerators(tmp_path: Path) -> None:
    async def scene() -> None:
        async with scripted_live(tmp_path, devices="v100=1,k80=1", policy="hadar") as site:
            assert await held(site, await site.submit(gang=2, steps=1000)) == {"v100": 1, "k80": 1}

    asyncio.run(scene())
