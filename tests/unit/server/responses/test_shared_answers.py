"""Questions of many clients: equal ones are computed once, about a state that is current."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.waiting import eventually
from tests.unit.live.scripted_live import ScriptedLive, scripted_live

from fairlead.model.snapshot import Snapshot
from fairlead.server import shared_answers
from fairlead.server.access.tokens import Principal
from fairlead.server.shared_answers import SharedAnswers


@contextlib.asynccontextmanager
async def settled_live(data: Path) -> AsyncIterator[ScriptedLive]:
    """Run a scheduler whose state no longer changes by itself."""
    async with scripted_live(data) as site:
        await eventually(lambda: site.live.journal.seq, "no plan has been due")
        yield site


def test_equal_questions_share_an_answer_until_the_state_changes(tmp_path: Path) -> None:
    async def scene() -> None:
        async with settled_live(tmp_path) as site:
            live, answers, computed = site.live, SharedAnswers(), []

            def count(snap: Snapshot) -> int:
                computed.append(len(snap.job))
                return len(computed)

            together = [answers.get(live, "q", count) for _ in range(13)]
            assert await asyncio.gather(*together) == [1] * 13
            assert await answers.get(live, "other", count) == 2
            assert await answers.get(live, "q", count) == 1
            await site.submit()
            assert await answers.get(live, "q", count) == 3
            assert computed == [0, 0, 1]

    asyncio.run(scene())


def test_a_question_that_waits_is_answered_for_all_who_ask_meanwhile(tmp_path: Path) -> None:
    async def scene() -> None:
        async with settled_live(tmp_path) as site:
            answers = SharedAnswers()
            async with answers.turn:
                first = asyncio.ensure_future(
                    answers.get(site.live, "q", lambda snap: len(snap.job))
                )
                await asyncio.sleep(0)
                await site.submit()
                second = asyncio.ensure_future(answers.get(site.live, "q", lambda _: -1))
                await asyncio.sleep(0)
            first.cancel()  # a client that leaves takes the answer from nobody
            assert await second == 1

    asyncio.run(scene())


def test_neither_errors_nor_old_answers_are_given_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene() -> None:
        async with settled_live(tmp_path) as site:
            live, answers = site.live, SharedAnswers()

            def fail(_: Snapshot) -> int:
                raise ZeroDivisionError

            with pytest.raises(ZeroDivisionError):
                await answers.get(live, "q", fail)
            assert await answers.get(live, "q", lambda _: 1) == 1
            assert await answers.get(live, "q", lambda _: 2) == 1
            monkeypatch.setattr(shared_answers, "_MAX_AGE_S", -1.0)
            assert await answers.get(live, "q", lambda _: 2) == 2

    asyncio.run(scene())


def test_only_principals_who_see_the_same_jobs_share_a_view() -> None:
    admin, viewer = Principal("a", "admin"), Principal("v", "viewer")
    red, friend = Principal("r", "tenant", "red"), Principal("f", "tenant", "red", sees=("blue",))
    assert admin.view == viewer.view
    assert red.view == Principal("other", "tenant", "red").view
    assert len({admin.view, red.view, friend.view, Principal("b", "tenant", "blue").view}) == 4
