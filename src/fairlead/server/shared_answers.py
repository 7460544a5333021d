"""Answers that clients share: equal questions about the same state are computed once."""

import asyncio
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

from fairlead.live.driver import Live
from fairlead.model.snapshot import Snapshot
from fairlead.server.api.live_instance import current_snapshot

_MAX_AGE_S = 5.0
"""age up to which an answer is given again: it may depend on elapsed times"""
_MAX_KEPT = 30
_PLAN_WAIT_S = 2.0
"""longest time for which a computation waits for a plan that is being made"""


@dataclass(slots=True)
class _Answer:
    """An answer that waits for its turn, is being computed, or was computed a moment ago."""

    task: "asyncio.Task[Any] | None" = None
    seq: int | None = None
    """number of the last event of its state; None while it waits for its turn"""
    at: float = 0.0

    def is_current(self, live: Live) -> bool:
        """Return whether it holds for one who asks now."""
        if self.seq is None:
            return True
        return self.seq == live.journal.seq and live.clock.now() - self.at <= _MAX_AGE_S


class SharedAnswers:
    """Computes one answer at a time, beside the event loop, for all who ask the same.

    One at a time, because each solves repeatedly and the planner needs a core. Questions that
    wait have no snapshot yet: many of them take little memory.
    """

    def __init__(self) -> None:
        self.turn = asyncio.Lock()
        """held while an answer is computed"""
        self._answers: dict[Hashable, _Answer] = {}
        """question and scheduling config → its last answer, the oldest first"""

    async def get(self, live: Live, question: Hashable, compute: Callable[[Snapshot], Any]) -> Any:
        """Return the answer to a question about the current state."""
        key = question, live.policy.config.name
        answer = self._answers.get(key)
        if answer is None or not answer.is_current(live):
            answer = _Answer()
            answer.task = asyncio.create_task(self._compute(live, answer, compute))
            answer.task.add_done_callback(lambda _: self._forget_outdated(live))
            self._answers.pop(key, None)
            self._answers[key] = answer
        assert answer.task is not None
        # A client that leaves must not take the answer from the others.
        return await asyncio.shield(answer.task)

    async def _compute(
        self, live: Live, answer: _Answer, compute: Callable[[Snapshot], Any]
    ) -> Any:
        async with self.turn:
            await live.rounds.until_planned(_PLAN_WAIT_S)
            answer.seq, answer.at = live.journal.seq, live.clock.now()
            return await asyncio.to_thread(compute, current_snapshot(live))

    def _forget_outdated(self, live: Live) -> None:
        """Keep only answers that may be given again, and not too many; errors are not kept."""
        done = [each for each in self._answers.items() if (task := each[1].task) and task.done()]
        useful = [
            question
            for question, answer in done
            if answer.is_current(live) and not _has_failed(answer)
        ]
        for question in {question for question, _ in done} - set(useful[-_MAX_KEPT:]):
            del self._answers[question]


def _has_failed(answer: _Answer) -> bool:
    task = answer.task
    return task is None or task.cancelled() or task.exception() is not None
