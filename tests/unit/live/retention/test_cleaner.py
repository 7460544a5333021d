"""Ended jobs, their files and old audit entries go by age and size; nothing else ever does."""

import asyncio
from pathlib import Path

import pytest
from tests.unit.live.scripted_live import ScriptedLive, scripted_live

from fairlead.core import Scheduler, state_bytes
from fairlead.core.queries import JobState
from fairlead.live.retention.cleaner import RetentionCleaner
from fairlead.live.retention.limits import RetentionLimits
from fairlead.server.access.authorization import NotFoundError, find_visible_job
from fairlead.server.access.tokens import Principal
from fairlead.server.api.metrics import render
from fairlead.store import Audit

DAY = 86400.0


async def finished(scripted: ScriptedLive, **fields: object) -> str:
    """Return a job that has finished."""
    job = await scripted.submit(**fields)
    lease = await scripted.lease(job)
    scripted.engine.end(lease, "finished")
    await scripted.recorded(lease)
    return job


def make_files(data: Path, job: str, size: int = 4096) -> Path:
    """Make logs and a checkpoint of a job, with a link to a file of another user's."""
    secret = data / "of-another-user"
    secret.write_text("keep me")
    for name in ("logs", "checkpoint/deep/er"):
        directory = data / "jobs" / job / name
        directory.mkdir(parents=True)
        (directory / "file").write_bytes(b"x" * size)
        (directory / "link").symlink_to(secret)
        (directory / "directory-link").symlink_to(data)
    return data / "jobs" / job


def documents(scripted: ScriptedLive, job: str) -> list[str]:
    store = scripted.live.store
    names = ("job", "job-result", "job-history", "hold", "kill")
    return [name for name in names if job in store.documents(name)]


def replayed(scripted: ScriptedLive) -> bytes:
    scheduler: Scheduler[object] = scripted.live.scheduler
    return state_bytes(scheduler)


def test_a_job_goes_with_all_its_traces_once_it_has_ended_for_long_enough(
    tmp_path: Path,
) -> None:
    async def scene() -> None:
        admin = Principal("ann", "admin")
        async with scripted_live(tmp_path) as scripted:
            live = scripted.live
            cleaner = RetentionCleaner(live, RetentionLimits(jobs_s=90 * DAY))
            old, running = await finished(scripted), await scripted.submit()
            await scripted.lease(running)
            held = await scripted.submit(after=(old,))
            await live.jobs.suspend(held, "tester")
            live.clock.not_before(live.clock.now() + 60 * DAY)
            newer = await finished(scripted)
            directories = {job: make_files(tmp_path, job) for job in (old, running, held, newer)}
            live.history.save_all()
            await cleaner.clean()
            assert set(live.specs) == {old, running, held, newer}
            live.clock.not_before(live.clock.now() + 31 * DAY)
            await cleaner.clean()
            assert set(live.specs) == {running, held, newer}
            kept = [job for job, path in directories.items() if path.exists()]
            assert kept == [running, held, newer]
            assert (tmp_path / "of-another-user").read_text() == "keep me"
            assert documents(scripted, old) == []
            assert documents(scripted, newer) == ["job", "job-result", "job-history"]
            assert b'fairlead_removed_total{kind="jobs"} 1.0' in render(live)
            assert b'fairlead_jobs_finished_total{tenant="default"} 2.0' in render(live)
            with pytest.raises(NotFoundError):
                find_visible_job(live, admin, old)
            assert live.queries.find_job(old) is None
            before, count = replayed(scripted), live.queries.job_count
            live.journal.save_final_state = lambda: None  # type: ignore[method-assign]  # a crash
        async with scripted_live(tmp_path) as scripted:
            assert replayed(scripted) == before
            assert set(scripted.live.specs) == {running, held, newer}
            assert old in scripted.live.counters.tally
            await RetentionCleaner(scripted.live, RetentionLimits()).forget_removed()
            assert old not in scripted.live.counters.tally
            assert documents(scripted, old) == []
            assert await scripted.submit() == f"j{count + 1}"
            await scripted.live.jobs.resume(held, "tester")
            queries = scripted.live.queries
            assert queries.job_state(queries.job_number(held)) == JobState.ACTIVE
            del scripted.live.specs[newer]  # as a version did that kept its description
            await RetentionCleaner(scripted.live, RetentionLimits()).forget_removed()
            assert queries.find_job(newer) is None

    asyncio.run(scene())


def test_logs_and_checkpoints_go_before_their_job_by_age_and_by_size(tmp_path: Path) -> None:
    async def scene() -> None:
        async with scripted_live(tmp_path) as scripted:
            live, now = scripted.live, scripted.live.clock.now()
            first, second, third = [await finished(scripted) for _ in range(3)]
            running = await scripted.submit()
            await scripted.lease(running)
            jobs = first, second, third, running
            homes = [make_files(tmp_path, job, 1 << 20) for job in jobs]
            (homes[1] / "logs/link").unlink()
            limits = RetentionLimits(logs_s=DAY, checkpoints_bytes=(5 << 20) // 2)
            cleaner = RetentionCleaner(live, limits)
            await cleaner.clean()
            assert [path.name for path in homes if (path / "checkpoint").exists()] == [*jobs[1:]]
            assert all((path / "logs").exists() for path in homes)
            live.clock.not_before(now + 2 * DAY)
            await cleaner.clean()
            assert [path.name for path in homes if (path / "logs").exists()] == [running]
            assert [path.name for path in homes if (path / "checkpoint").exists()] == [*jobs[1:]]
            assert set(live.specs) == set(jobs)
            metrics = render(live)
            assert b'fairlead_removed_total{kind="logs"} 3.0' in metrics
            assert b'fairlead_removed_total{kind="checkpoints"} 1.0' in metrics

    asyncio.run(scene())


def test_a_link_in_place_of_the_logs_is_removed_and_not_followed(tmp_path: Path) -> None:
    async def scene() -> None:
        async with scripted_live(tmp_path) as scripted:
            job = await finished(scripted)
            home = make_files(tmp_path, job)
            (home / "logs").rename(tmp_path / "elsewhere")
            (home / "logs").symlink_to(tmp_path / "elsewhere")
            await RetentionCleaner(scripted.live, RetentionLimits(logs_s=0.0)).clean()
            assert not (home / "logs").is_symlink()
            assert (tmp_path / "elsewhere/file").exists()

    asyncio.run(scene())


def test_old_audit_entries_go_and_the_chain_stays_verifiable(tmp_path: Path) -> None:
    async def scene() -> None:
        async with scripted_live(tmp_path) as scripted:
            live, now = scripted.live, scripted.live.clock.now()
            cleaner = RetentionCleaner(live, RetentionLimits(audit_s=10 * DAY))
            await live.write([Audit(now + i, "ann", "act", f"{i}") for i in range(2500)])
            live.clock.not_before(now + 9 * DAY)
            await live.write([Audit(live.clock.now(), "ann", "act", "newer")])
            live.clock.not_before(now + 10.5 * DAY)
            await cleaner.clean()  # a removal is an entry itself, so it waits for enough entries
            assert live.store.verify_audit_trail().entries == 2501
            live.clock.not_before(now + 11.5 * DAY)
            await cleaner.clean()
            result = live.store.verify_audit_trail()
            assert (result.problem, result.entries) == (None, 4)
            entries = live.store.audit_trail()
            assert [entry["subject"] for entry in entries] == ["audit", "audit", "audit", "newer"]
            assert "500 entries, the last one number 2500 with hash" in entries[0]["detail"]
            assert live.store.verify_audit_trail(newest=100).problem is None
            assert b'fairlead_removed_total{kind="audit"} 2500.0' in render(live)

    asyncio.run(scene())
