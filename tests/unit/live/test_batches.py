"""Requests for many jobs: one transaction, the same events after a replay, no spurious starts."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.waiting import eventually
from tests.unit.live.scripted_live import ScriptedLive, scripted_live

from fairlead.core.event_log import decode_event
from fairlead.core.queries import JobState
from fairlead.job import checkpoint
from fairlead.live.inputs.joined_events import joined
from fairlead.live.inputs.pieces import PIECE
from fairlead.live.job_ends.dependencies import JobDependencies
from fairlead.live.job_requests.rejections import reject_request
from fairlead.live.job_spec import JobSpec
from fairlead.model import events as ev
from fairlead.model.errors import FairleadError, InputError, ProtocolError
from fairlead.model.job import Job


def specs(count: int, **fields: Any) -> list[JobSpec]:
    return [JobSpec(command=("true",), workload="m", **fields) for _ in range(count)]


async def submit(site: ScriptedLive, count: int, **fields: Any) -> list[str]:
    made = await site.live.jobs.submissions.submit(
        specs(count, **fields), "ann", is_admin=False, reject=reject_request
    )
    return [spec.id for spec in made]


def logged(site: ScriptedLive) -> list[ev.Event]:
    memory = type(site.live.scheduler.memory)
    return [decode_event(one.body, memory) for one in site.live.store.load_events(0)]


def test_a_batch_of_cancellations_starts_none_of_its_jobs(tmp_path: Path) -> None:
    async def scene() -> None:
        async with scripted_live(tmp_path, devices="v100=2,k80=2") as site:
            jobs = await submit(site, 8, accelerators=("k80",))
            running = [site.engine.open[await site.lease(job)] for job in jobs[:2]]
            assert running == jobs[:2]
            await site.live.jobs.changes.cancel(jobs, "ann")
            await eventually(lambda: not site.live.leases, "the leases do not end")
            assert {site.live.counters.of(job).leases for job in jobs[2:]} == {0}
            cancelled = [each for each in logged(site) if isinstance(each, ev.JobCancelled)]
            assert [each.more for each in cancelled] == [True] * 7 + [False]
            assert len({each.at for each in cancelled}) == 1

    asyncio.run(scene())


def test_a_restart_restores_batches(tmp_path: Path) -> None:
    async def states(site: ScriptedLive) -> list[tuple[str, int, int]]:
        queries = site.live.queries
        jobs = [queries.job_status(number) for number in range(6)]
        return [(one.id, int(one.state), one.job.priority) for one in jobs]

    async def scene() -> None:
        async with scripted_live(tmp_path) as site:
            jobs = await submit(site, 6, gang=2, accelerators=("k80",))
            changes = site.live.jobs.changes
            await changes.suspend(jobs[2:], "ann")
            await changes.resume(jobs[4:], "ann")
            await changes.adjust(
                jobs[:5], "ann", lambda job: replace(job, priority=4), "", is_admin=True
            )
            await changes.cancel(jobs[1:3], "ann")
            before = await states(site)
            assert [job.more for job in logged(site) if isinstance(job, ev.JobReleased)] == [
                True,
                False,
            ]
        async with scripted_live(tmp_path) as site:
            assert await states(site) == before
            assert site.live.suspended_jobs == {jobs[3]}

    asyncio.run(scene())


def test_a_rejected_job_leaves_no_trace_of_the_others(tmp_path: Path) -> None:
    async def scene() -> None:
        async with scripted_live(tmp_path) as site:
            jobs = await submit(site, 2)
            mixed = [*specs(3), *specs(1, gang=9)]
            with pytest.raises(InputError, match=r"^jobs\[3\]\.") as raised:
                await site.live.jobs.submissions.submit(
                    mixed, "ann", is_admin=False, reject=reject_request
                )
            assert raised.value.field is not None
            with pytest.raises(ProtocolError, match=r"^jobs\[2\]: unknown job 'x'"):
                await site.live.jobs.changes.cancel([*jobs, "x"], "ann", reject=reject_request)
            assert [*site.live.specs] == jobs
            changes = [each for each in logged(site) if hasattr(each, "more")]
            assert [type(each) for each in changes] == [ev.JobSubmitted] * 2
            rejected: dict[int, FairleadError] = {}
            await site.live.jobs.changes.suspend(
                ["x", *jobs], "ann", lambda index, error: rejected.update({index: error})
            )
            assert site.live.suspended_jobs == {*jobs}
            assert [*rejected] == [0]

    asyncio.run(scene())


@pytest.mark.parametrize("action", ["kill", "resume"])
def test_a_job_that_is_removed_before_its_change_stops_nothing(
    tmp_path: Path, action: str
) -> None:
    async def scene() -> None:
        async with scripted_live(tmp_path) as site:
            live, job = site.live, await site.submit()
            await live.jobs.cancel(job, "ann")
            live.inbox.post(lambda at: [ev.JobsRemoved(at, (job,))])
            change = live.jobs.changes.resume if action == "resume" else live.force_cancel
            with pytest.raises(ProtocolError, match=f"unknown job '{job}'"):
                await change([job], "ann")
            await live.write([])
            assert not live.tasks.broken.is_set()

    asyncio.run(scene())


def test_a_job_that_has_ended_is_neither_resumed_nor_killed(tmp_path: Path) -> None:
    async def scene() -> None:
        async with scripted_live(tmp_path) as site:
            changes = site.live.jobs.changes
            jobs = await submit(site, 2)
            ended, suspended = jobs
            await changes.suspend(jobs, "ann")
            await site.live.jobs.cancel(ended, "ann")
            refusal = rf"^jobs\[1\]: job '{ended}' has already ended"
            for change in (changes.resume, site.live.force_cancel):
                with pytest.raises(ProtocolError, match=refusal):
                    await change([suspended, ended], "ann", reject_request)
            assert site.live.suspended_jobs == {suspended}
            rejected: dict[int, FairleadError] = {}
            await changes.resume(
                [ended, suspended], "ann", lambda index, error: rejected.update({index: error})
            )
            assert ([*rejected], site.live.suspended_jobs) == ([0], set())

    asyncio.run(scene())


def test_the_devices_are_used_after_the_last_event_of_a_request() -> None:
    job = Job(id="a", workload="m", total_steps=1.0)
    events = [
        ev.JobSubmitted(1.0, job),
        ev.JobSubmitted(1.0, job),
        ev.JobSubmitted(1.0, job, held=True),
    ]
    assert joined(events) == [replace(events[0], more=True), *events[1:]]
    assert joined([]) == []
    assert joined([ev.JobChanged(1.0, job)]) == [ev.JobChanged(1.0, job)]


def wait_for(name: str, *after: str, **fields: Any) -> JobSpec:
    return JobSpec(command=("true",), workload="m", name=name, after=after, **fields)


async def send(site: ScriptedLive, jobs: list[JobSpec]) -> list[JobSpec]:
    return await site.live.jobs.submissions.submit(
        jobs, "ann", is_admin=False, reject=reject_request
    )


def test_jobs_of_a_request_wait_for_each_other_by_name(tmp_path: Path) -> None:
    async def scene() -> None:
        async with scripted_live(tmp_path) as site:
            old = await site.submit()
            jobs = [
                wait_for("report", "train", after_any=(old,)),
                wait_for("train", "prepare"),
                wait_for("prepare"),
                wait_for("check", "prepare", start_from="prepare"),
            ]
            report, train, prepare, check = await send(site, jobs)
            assert (report.after, report.after_any) == ((train.id,), (old,))
            assert (train.after, check.start_from) == ((prepare.id,), prepare.id)
            assert [job.id for job in (report, train, prepare, check)] == ["j2", "j3", "j4", "j5"]
            submitted = [each for each in logged(site) if isinstance(each, ev.JobSubmitted)]
            assert [each.held for each in submitted[1:]] == [True, True, False, True]
            site.engine.end(await site.lease(prepare.id), "finished", steps=1.0)
            await site.lease(train.id)
        async with scripted_live(tmp_path) as site:
            dependencies = site.live.ends.dependencies
            assert dependencies.unended(report.id) == [train.id, old]
            assert dependencies.waits(report.id)

    asyncio.run(scene())


@pytest.mark.parametrize(
    ("jobs", "error"),
    [
        (
            [wait_for("a"), wait_for("b", "c"), wait_for("c", "d"), wait_for("d", "b")],
            r"^jobs\[1\]\.after: the job waits for itself:"
            r" jobs\[1\] → jobs\[2\] → jobs\[3\] → jobs\[1\]: expected no cycle",
        ),
        (
            [wait_for("a", after_any=("b",)), wait_for("b", "a")],
            r"^jobs\[0\]\.after_any: the job waits for itself",
        ),
        (
            [wait_for(str(i), str((i + 1) % 50)) for i in range(50)],
            r"jobs\[0\] → jobs\[1\] → jobs\[2\] → jobs\[3\] → … → jobs\[0\]: expected",
        ),
        ([wait_for("a", "a")], r"^jobs\[0\]\.after: no job 'a': expected the id or name"),
        (
            [wait_for("a"), wait_for("a"), wait_for("b", "a")],
            r"^jobs\[2\]\.after: 2 jobs of the request are named 'a': expected a name",
        ),
        (
            [wait_for("a"), wait_for("b", start_from="a")],
            r"^jobs\[1\]\.start_from: a job of the same request, which has no checkpoint yet:"
            r" expected it in after",
        ),
        ([wait_for("a", tenant="t"), wait_for("b", "a")], r"^jobs\[1\]\.after: no job 'a'"),
    ],
)
def test_impossible_dependencies_of_a_request_change_nothing(
    tmp_path: Path, jobs: list[JobSpec], error: str
) -> None:
    async def scene() -> None:
        async with scripted_live(tmp_path) as site:
            with pytest.raises(InputError, match=error):
                await send(site, jobs)
            assert site.live.specs == {}
            assert not [each for each in logged(site) if isinstance(each, ev.JobSubmitted)]
            assert not site.live.ends.dependencies.waits("j1")

    asyncio.run(scene())


def test_a_name_that_two_jobs_use_for_different_checkpoints_is_checked_for_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene() -> None:
        async with scripted_live(tmp_path) as site:
            old = await site.submit(name="base")
            saved = site.live.orders.checkpoint_dir(old)
            monkeypatch.setattr(checkpoint, "saved_steps", lambda at: 5.0 if at == saved else None)
            jobs = [wait_for("base", start_from="base"), wait_for("", start_from="base")]
            with pytest.raises(InputError, match=r"^jobs\[1\]\.start_from: a job of the same"):
                await send(site, jobs)
            assert (await send(site, jobs[:1]))[0].start_from == old

    asyncio.run(scene())


def test_looking_up_a_name_takes_one_pass_over_the_jobs_that_have_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[str] = []
    original = JobDependencies._is_unended

    def counted(self: JobDependencies, job_id: str) -> bool:
        looks.append(job_id)
        return original(self, job_id)

    monkeypatch.setattr(JobDependencies, "_is_unended", counted)

    async def scene() -> None:
        async with scripted_live(tmp_path) as site:
            named = await submit(site, 30, name="x")
            await site.live.jobs.changes.cancel(named, "ann")
            made = await submit(site, 20, after_any=("x",) * 100)
            assert site.live.specs[made[0]].after_any == (named[-1],)
            assert sorted(looks) == sorted(named)

    asyncio.run(scene())


def test_a_repeated_request_returns_the_jobs_of_the_one_in_progress(tmp_path: Path) -> None:
    jobs = [wait_for("b", "a", idempotency_key="k/0"), wait_for("a", idempotency_key="k/1")]

    async def scene() -> None:
        async with scripted_live(tmp_path) as site:
            first, again = await asyncio.gather(send(site, jobs), send(site, jobs))
            assert first == again
            assert await send(site, [*jobs, wait_for("c", "b")]) == [
                *first,
                wait_for("c", first[0].id).with_id("j3"),
            ]
            assert [*site.live.specs] == ["j1", "j2", "j3"]
        async with scripted_live(tmp_path) as site:
            assert [job.id for job in await send(site, jobs)] == ["j1", "j2"]

    asyncio.run(scene())


def test_requests_are_served_while_a_long_one_is_handled(tmp_path: Path) -> None:
    seen: set[tuple[int, int]] = set()
    """jobs, and unended ones, when the event loop was free"""

    async def read(site: ScriptedLive) -> None:
        queries = site.live.queries
        while True:
            numbers = [queries.job_number(job_id) for job_id in site.live.specs]
            assert numbers == [*range(len(site.live.scheduler.jobs))]
            states = [queries.job_state(number) for number in numbers]
            look = len(states), states.count(JobState.ACTIVE)
            # Where nothing is handled, the threads that persist inputs need the time.
            await asyncio.sleep(0.001 if look in seen else 0)
            seen.add(look)

    async def scene() -> None:
        async with scripted_live(tmp_path) as site:
            reader = asyncio.create_task(read(site))
            jobs = await submit(site, 400)
            assert len({count for count, _ in seen if 0 < count < 400}) >= 200 // PIECE
            seen.clear()
            await site.live.jobs.changes.cancel(jobs, "ann")
            assert len({unended for _, unended in seen if 0 < unended < 400}) >= 200 // PIECE
            assert not reader.done()
            reader.cancel()
            submitted = [each for each in logged(site) if isinstance(each, ev.JobSubmitted)]
            assert len({each.at for each in submitted}) == 1

    asyncio.run(scene())
