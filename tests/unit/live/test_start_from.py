"""Jobs that start from the checkpoint of another job."""

import asyncio
import os
from pathlib import Path

import pytest
from tests.support.waiting import eventually
from tests.unit.live.scripted_live import ScriptedLive, scripted_live
from tests.unit.live.test_job_ends import finish, view

from fairlead.core import decode_event, encode_event
from fairlead.job import checkpoint
from fairlead.live.checkpoints.copying import NoCheckpointError, copy_checkpoint
from fairlead.live.job_ends.dependencies import JobDependencies
from fairlead.model.errors import InputError
from fairlead.model.events import JobReleased


def save(directory: Path, steps: int, *payloads: bytes, lease: int = 7) -> None:
    checkpoint.raise_fence(str(directory), lease)
    for rank, payload in enumerate(payloads):
        checkpoint.write(str(directory), lease, steps, rank, payload)
    checkpoint.commit(str(directory), lease, steps, len(payloads))


def directory(site: ScriptedLive, job: str) -> Path:
    return Path(site.live.orders.checkpoint_dir(job))


def test_a_copy_is_complete_and_later_than_no_lease(tmp_path: Path) -> None:
    source, target = tmp_path / "a" / "checkpoint", tmp_path / "b" / "checkpoint"
    save(source, 40, b"rank 0", b"rank 1")
    (tmp_path / "b" / "checkpoint.incoming").mkdir(parents=True)  # a server died here
    assert copy_checkpoint(source, target) == 40.0
    assert [checkpoint.read(str(target), rank) for rank in (0, 1)] == [b"rank 0", b"rank 1"]
    assert os.listdir(tmp_path / "b") == ["checkpoint"]
    save(source, 50, b"later", b"later", lease=9)
    assert copy_checkpoint(source, target) == 40.0
    save(target, 41, b"own", lease=1)  # every lease may replace it
    assert sorted(os.listdir(target)) == ["1-41.0.ckpt", "fence", "latest.json", "lock"]


@pytest.mark.parametrize("damage", ["missing", "flipped", "linked", "endless"])
def test_a_damaged_checkpoint_is_not_copied(damage: str, tmp_path: Path) -> None:
    source, target = tmp_path / "a" / "checkpoint", tmp_path / "b" / "checkpoint"
    secret = tmp_path / "secret"
    secret.write_bytes(b"of the server")
    save(source, 40, b"payload")
    file = source / "7-40.0.ckpt"
    if damage == "flipped":
        file.write_bytes(file.read_bytes()[:-1] + b"!")
    else:
        file.unlink()
    if damage == "linked":
        file.symlink_to(secret)
    if damage == "endless":
        file.symlink_to("/dev/zero")
    with pytest.raises(NoCheckpointError):
        copy_checkpoint(source, target)
    assert not target.exists()


def test_a_job_starts_from_a_checkpoint_and_a_restarted_server_copies_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene() -> None:
        async with scripted_live(tmp_path) as site:
            source = await site.submit(name="base", steps=100)
            for name, problem in (
                (source, f"job {source} has no checkpoint"),
                ("x", "no job 'x'"),
            ):
                with pytest.raises(InputError, match=f"start_from: {problem}: expected"):
                    await site.submit(start_from=name)
            save(directory(site, source), 60, b"state")
            theirs = {"tenant": "them", "start_from": source}
            with pytest.raises(InputError, match=f"start_from: no job '{source}'"):
                await site.submit(**theirs)
            # The server dies before it has copied the checkpoint.
            monkeypatch.setattr(JobDependencies, "settle", lambda *_: None)
            waiting = await site.submit(start_from="base", steps=100)
            monkeypatch.undo()
            assert not directory(site, waiting).exists()
        async with scripted_live(tmp_path) as site:
            await site.lease(waiting)
            assert checkpoint.read(str(directory(site, waiting)), 0) == b"state"
            assert (view(site, waiting).start_from, view(site, waiting).steps_done) == (source, 60)
        async with scripted_live(tmp_path) as site:
            assert view(site, waiting).steps_done == 60

    asyncio.run(scene())


def test_a_job_waits_for_its_source_and_survives_suspension(tmp_path: Path) -> None:
    async def scene() -> None:
        async with scripted_live(tmp_path) as site:
            source = await site.submit(steps=100)
            tuned = await site.submit(after=(source,), start_from=source, steps=200)
            failing = await site.submit(after_any=(source,), start_from=source)
            await site.live.jobs.suspend(tuned, "user")
            assert view(site, tuned).waits_for == [source]
            save(directory(site, source), 100, b"state")
            await finish(site, source)
            assert view(site, tuned).state == "suspended"
            await site.lease(failing)
            await site.live.jobs.resume(tuned, "user")
            await site.lease(tuned)
            assert view(site, tuned).steps_done == 100
            last = await site.submit(steps=100)
            lost = await site.submit(after=(last,), start_from=last)
            await finish(site, last)
            await eventually(lambda: view(site, lost).state == "failed", "it is not failed")
            problem = f"start_from: no checkpoint of job {last}: it has not saved one"
            assert view(site, lost).message == problem

    asyncio.run(scene())


def test_events_without_steps_are_written_as_before() -> None:
    written = encode_event(JobReleased(1.0, "j1"))
    assert "steps" not in written
    assert decode_event(written, type(None)) == JobReleased(1.0, "j1")
    continued = JobReleased(1.0, "j1", 60.0)
    assert decode_event(encode_event(continued), type(None)) == continued
