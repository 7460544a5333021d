"""Dependencies between jobs, total time limits and notifications of a live scheduler."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.support.waiting import eventually
from tests.unit.live.scripted_live import ScriptedEngine, ScriptedLive, scripted_live

from fairlead.core import decode_event
from fairlead.core.saved_state import state_bytes
from fairlead.engines.base import LaunchOrder
from fairlead.live.job_ends import notifications
from fairlead.live.job_ends.urls import AllowedUrls
from fairlead.model.errors import InputError
from fairlead.server.api.job_messages import JobView
from fairlead.server.api.views import job_view


def view(site: ScriptedLive, job: str) -> JobView:
    return job_view(site.live, site.live.scheduler.jobs.number[job])


async def finish(site: ScriptedLive, job: str) -> None:
    """End a job's lease as finished; return once the scheduler has recorded it."""
    site.engine.end(await site.lease(job), "finished")
    await eventually(lambda: view(site, job).state == "finished", "it does not finish")
    await site.live.write([])


async def states(site: ScriptedLive, *jobs: str) -> list[str]:
    await site.live.write([])
    return [view(site, job).state for job in jobs]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"steps": 9}, "finished without reporting a step: --steps 9 was not checked"),
        ({"steps": 9, "allow_short": True}, ""),
        ({}, ""),
    ],
)
def test_a_finished_job_that_has_reported_no_step_says_that_its_steps_were_not_checked(
    tmp_path: Path, settings: dict[str, Any], message: str
) -> None:
    async def scene() -> None:
        async with scripted_live(tmp_path) as site:
            job = await site.submit(**settings)
            await finish(site, job)
            assert view(site, job).message == message
        async with scripted_live(tmp_path) as site:
            assert view(site, job).message == message

    asyncio.run(scene())


def test_a_job_starts_after_the_jobs_that_it_names_have_finished(tmp_path: Path) -> None:
    async def scene() -> None:
        async with scripted_live(tmp_path) as site:
            first = await site.submit(name="prepare")
            other = await site.submit()
            last = await site.submit(after=("prepare", other))
            assert (view(site, last).state, view(site, last).waits_for) == (
                "queued",
                [first, other],
            )
            assert view(site, last).message == f"waits for {first}, {other}"
            await finish(site, first)
            assert await states(site, last) == ["queued"]
            assert last not in site.engine.open.values()
            await finish(site, other)
            await finish(site, last)
            assert (view(site, last).waits_for, view(site, last).message) == ([], "")
            at_once = await site.submit(after=(first, "prepare"))
            await site.lease(at_once)

    asyncio.run(scene())


@pytest.mark.parametrize("end", ["cancelled", "failed"])
def test_a_failed_dependency_fails_the_jobs_behind_it_and_names_itself(
    end: str, tmp_path: Path
) -> None:
    async def scene() -> None:
        async with scripted_live(tmp_path) as site:
            first = await site.submit(retries=0)
            second = await site.submit(after=(first,))
            suspended = await site.submit(after=(second,))
            tolerant = await site.submit(after_any=(second,))
            await site.live.jobs.suspend(suspended, "user")
            if end == "failed":
                await site.fail(first)
            else:
                await site.live.jobs.cancel(first, "user")
            await eventually(lambda: view(site, suspended).state == "failed", "it is not failed")
            word = "has failed" if end == "failed" else "was cancelled"
            assert view(site, second).message == f"dependency: job {first} {word}"
            assert view(site, suspended).message == f"dependency: job {second} has failed"
            await site.lease(tolerant)
            with pytest.raises(InputError, match=f"after: job {first} {word}: expected"):
                await site.submit(after=(first,))
        async with scripted_live(tmp_path) as site:
            assert view(site, second).message == f"dependency: job {first} {word}"

    asyncio.run(scene())


def test_a_waiting_job_survives_restarts_suspension_and_ends_it_did_not_see(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene() -> None:
        async with scripted_live(tmp_path) as site:
            first = await site.submit()
            waiting = await site.submit(after=(first,))
            failing = await site.submit(after=(first,))
        async with scripted_live(tmp_path) as site:
            assert await states(site, waiting) == ["queued"]
            await site.live.jobs.suspend(waiting, "user")
            await site.live.jobs.resume(waiting, "user")
            assert await states(site, waiting) == ["queued"]
            assert view(site, waiting).waits_for == [first]
            await site.live.jobs.suspend(waiting, "user")
            # The server ends between the end of a job and its consequences.
            monkeypatch.setattr(site.live.ends.dependencies, "job_ended", lambda _: None)
            await site.live.jobs.cancel(first, "user")
        async with scripted_live(tmp_path) as site:
            await eventually(lambda: view(site, failing).state == "failed", "it is not failed")
            assert await states(site, waiting, failing) == ["failed", "failed"]

    asyncio.run(scene())


def test_dependencies_that_cannot_be_met_are_refused_and_change_nothing(tmp_path: Path) -> None:
    async def scene() -> None:
        async with scripted_live(tmp_path) as site:
            theirs = await site.submit(tenant="them", name="train")
            for _ in range(2):
                await site.submit(name="twin")
            cases = {
                theirs: f"after: no job '{theirs}': expected the id or name of a job of tenant",
                "train": "after: no job 'train'",
                "twin": "after: 2 jobs are named 'twin': expected ids, such as j2, j3",
            }
            for name, message in cases.items():
                with pytest.raises(InputError) as caught:
                    await site.submit(after=(name,))
                assert str(caught.value).startswith(message)
            assert len(site.live.specs) == 3

    asyncio.run(scene())


def test_replay_of_held_submissions_gives_the_same_state(tmp_path: Path) -> None:
    async def scene() -> None:
        async with scripted_live(tmp_path) as site:
            first = await site.submit()
            waiting = await site.submit(after=(first,))
            await finish(site, first)
            await site.lease(waiting)
            live = site.live
            before, memory = state_bytes(live.scheduler), type(live.scheduler.memory)
            bodies = [record.body for record in live.store.load_events(0)]
            held = [json.loads(body) for body in bodies if '"held"' in body]
            assert [event["job"]["id"] for event in held] == [waiting]
        async with scripted_live(_fresh(tmp_path)) as other:
            for body in bodies:
                other.live.scheduler.handle(decode_event(body, memory))
            assert state_bytes(other.live.scheduler) == before

    asyncio.run(scene())


def _fresh(path: Path) -> Path:
    made = path / "fresh"
    made.mkdir()
    return made


def test_the_time_limit_counts_all_leases_of_a_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits: list[float | None] = []
    launch = ScriptedEngine.launch

    async def recorded(engine: ScriptedEngine, order: LaunchOrder) -> None:
        limits.append(order.time_limit_s)
        await launch(engine, order)

    monkeypatch.setattr(ScriptedEngine, "launch", recorded)

    async def scene() -> None:
        async with scripted_live(tmp_path) as site:
            now, passed_s = site.live.clock.now, [0.0]
            monkeypatch.setattr(site.live.clock, "now", lambda: now() + passed_s[0])
            job = await site.submit(time_limit_s=1000.0, retries=5)
            lease = await site.lease(job)
            passed_s[0] += 700.0
            site.engine.end(lease, "left")
            again = await site.lease(job)
            assert again != lease
            assert limits[0] == 1000.0
            assert limits[1] is not None
            assert 200.0 < limits[1] <= 300.0
            passed_s[0] += 300.0
            site.engine.end(again, "left", "time limit of 300 s")
            await eventually(lambda: view(site, job).state == "failed", "it is not failed")
            message = view(site, job).message
            assert message.startswith("time limit: held its devices for 1")
            assert message.endswith(" s of at most 1000 s")
            await site.live.write([])
        async with scripted_live(tmp_path) as site:
            assert view(site, job).message == message
            assert view(site, job).held_s >= 1000.0

    asyncio.run(scene())


@asynccontextmanager
async def receiver(
    answers: list[bytes],
) -> AsyncIterator[tuple[str, list[dict[str, Any]]]]:
    """Serve these answers, the last one repeatedly; yield the URL and the received requests."""
    received: list[dict[str, Any]] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = int(head.partition("Content-Length: ")[2].partition("\r")[0])
        body = json.loads(await reader.readexactly(length))
        received.append({"head": head, **body})
        writer.write(answers.pop(0) if len(answers) > 1 else answers[0])
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/hooks/", received
    finally:
        server.close()


def test_notifications_are_retried_and_survive_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notifications, "_FIRST_RETRY_S", 0.01)

    async def scene() -> None:
        answers = [b"HTTP/1.1 503 busy\r\n\r\n", b"HTTP/1.1 204 ok\r\n\r\n"]
        async with receiver(answers) as (url, received):
            allowed = AllowedUrls.parse([url])
            async with scripted_live(tmp_path, notified_urls=allowed) as site:
                job = await site.submit(notify=f"{url}secret", name="run", retries=0)
                assert view(site, job).notify == url.removesuffix("/hooks/")
                await site.fail(job)
                await eventually(lambda: len(received) == 2, "no notification")
                await _until_all_are_gone(site)
                # The server ends before it can deliver the next one.
                monkeypatch.setattr(site.live.ends.notifications, "send", lambda _: None)
                late = await site.submit(notify=f"{url}secret")
                await site.live.jobs.cancel(late, "user")
            assert [body["id"] for body in received] == [f"{job}-failed"] * 2
            assert (received[0]["event"], received[0]["message"]) == ("job.failed", "it broke")
            assert f"Fairlead-Notification: {job}-failed" in received[0]["head"]
            async with scripted_live(tmp_path, notified_urls=allowed) as site:
                await eventually(lambda: len(received) == 3, "no notification after the restart")
                assert received[2]["event"] == "job.cancelled"
                await _until_all_are_gone(site)

    asyncio.run(scene())


def test_redirects_are_not_followed_and_preemptions_are_sent_on_request(tmp_path: Path) -> None:
    async def scene() -> None:
        async with receiver([b"HTTP/1.1 200 ok\r\n\r\n"]) as (other, elsewhere):
            redirect = f"HTTP/1.1 307 see\r\nLocation: {other}\r\n\r\n".encode()
            async with receiver([redirect]) as (url, received):
                allowed = AllowedUrls.parse([url])
                async with scripted_live(tmp_path, notified_urls=allowed) as site:
                    for wanted in (False, True):
                        job = await site.submit(notify=url, notify_preemptions=wanted)
                        lease = await site.lease(job)
                        site.engine.end(lease, "left")
                        await finish(site, job)
                    await eventually(lambda: len(received) == 3, "no notifications")
                    await _until_all_are_gone(site)
                ids = ["j1-finished", f"j2-preempted-{lease}", "j2-finished"]
                assert [body["id"] for body in received] == ids
                assert elsewhere == []

    asyncio.run(scene())


async def _until_all_are_gone(site: ScriptedLive) -> None:
    """Wait until no notification is stored: delivered and refused ones are removed."""
    store = site.live.store
    async with asyncio.timeout(90):
        while await asyncio.to_thread(store.documents, notifications.KIND):
            await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    ("prefixes", "url", "message"),
    [
        ("", "https://a.example/x", "this server sends no notifications: expected its operator"),
        ("https://a.example/hooks", "https://a.example/hooksmith", "are not allowed"),
        ("https://a.example/hooks", "https://a.example/", "are not allowed"),
        ("https://a.example/", "http://a.example/", "are not allowed"),
        ("https://a.example/", "https://a.example:8443/", "are not allowed"),
        ("https://a.example/", "https://a.example.evil.org/", "are not allowed"),
        ("https://a.example/", "https://a.example@evil.org/", "not a usable URL"),
        ("https://a.example/h/", "https://a.example/h/../admin", "not a usable URL"),
        ("https://a.example/h/", "https://a.example/h/%2E%2e/admin", "not a usable URL"),
        ("https://a.example/h/", "https://a.example/h/..\\admin", "not a usable URL"),
        ("https://a.example/", "https://a.example/\r\nX: y", "not a usable URL"),
        ("https://a.example/", "file:///etc/passwd", "not a usable URL"),
        ("https://a.example/", "https://a.example:99999/", "not a usable URL"),
    ],
)
def test_a_url_that_the_operator_has_not_allowed_is_refused(
    prefixes: str, url: str, message: str
) -> None:
    with pytest.raises(InputError, match=message) as caught:
        AllowedUrls.parse(prefixes.split(",")).check(url)
    assert caught.value.field == "notify"


def test_a_url_at_or_below_an_allowed_prefix_is_accepted() -> None:
    allowed = AllowedUrls.parse(["https://a.example/hooks", "http://127.0.0.1:9000/"])
    for url in (
        "https://a.example/hooks?x=1",
        "https://a.example/hooks/j",
        "http://127.0.0.1:9000",
    ):
        assert allowed.check(url).path.startswith("/")
