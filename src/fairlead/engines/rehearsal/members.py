"""The process of rehearsed members, thousands of which renew, leave and finish.

``python -m fairlead.engines.rehearsal.members DIR START_S`` listens on ``DIR/socket`` for the
engine's messages, one JSON object per line, and answers likewise. A member behaves like the job
library: it counts steps at its speed, renews its lease over its own connection, and leaves with
its gang after the same step. A job's next lease starts from the steps of its last one.
``DIR/figures.json`` holds counts and times. The process ends a minute after its last engine.
"""

import asyncio
import json
import os
import sys
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fairlead.atomic_file import replace_text
from fairlead.engines.rehearsal.http_client import JsonConnection
from fairlead.job.lease import next_renewal_s

_EXIT_WITHOUT_ENGINE_S = 60.0
_RETRY_S = 0.5
_STOPPING_RENEWAL_S = 0.05
_MAX_SAMPLES = 50_000
_MAX_LINE_BYTES = 1 << 26


@dataclass
class RehearsalStats:
    """Counts and times of a rehearsal."""

    launched: int = 0
    stopped: int = 0
    finished: int = 0
    lost: int = 0
    renewed: int = 0
    refused: int = 0
    renewal_s: deque[float] = field(default_factory=lambda: deque(maxlen=_MAX_SAMPLES))
    """times of recent renewals"""
    leave_s: deque[float] = field(default_factory=lambda: deque(maxlen=_MAX_SAMPLES))
    """times from stop request to end"""

    def as_dict(self) -> dict[str, object]:
        """Return the counts, and quantiles of the times."""
        values: dict[str, object] = {
            name: value for name, value in vars(self).items() if isinstance(value, int)
        }
        for name in ("renewal_s", "leave_s"):
            times = sorted(getattr(self, name))
            for part in (0.5, 0.99, 1.0) if times else ():
                values[f"{name} {part:g}"] = times[min(int(part * len(times)), len(times) - 1)]
        return values


@dataclass(kw_only=True)
class RehearsalGang:
    """The members of one lease."""

    lease: int
    job: str
    ranks: int
    url: str
    token: str
    steps_per_s: float
    total_steps: int
    base: int
    """steps of the job's earlier leases"""
    began_at: float = 0.0
    stop_requested_at: float | None = None
    leave_after: int | None = None
    frozen_at: float | None = None
    stop: asyncio.Event = field(default_factory=asyncio.Event)

    def steps(self) -> int:
        """Return the number of steps made so far."""
        until = self.frozen_at or time.monotonic()
        made = self.base + int((until - self.began_at) * self.steps_per_s)
        last = self.total_steps if self.leave_after is None else self.leave_after
        return min(max(made, self.leave_after or 0), last)


class RehearsalNodes:
    """All gangs, and the connection to the engine."""

    def __init__(self, root: Path, start_s: float) -> None:
        self.root, self.start_s = root, start_s
        self.gangs: dict[int, RehearsalGang] = {}
        self.saved: dict[str, int] = {}
        """job → steps of its last lease"""
        self.ended: dict[int, dict[str, object]] = {}
        """lease → its end, until the engine forgets it"""
        self.figures = RehearsalStats()
        self.disconnected_since: float | None = time.monotonic()
        self._engine: asyncio.StreamWriter | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Serve engines, one after the other, until none has connected for a while."""
        path = self.root / "socket"
        path.unlink(missing_ok=True)
        server = await asyncio.start_unix_server(self._serve, str(path), limit=_MAX_LINE_BYTES)
        (self.root / "pid").write_text(str(os.getpid()), encoding="ascii")
        async with server:
            while (
                self.disconnected_since is None
                or time.monotonic() - self.disconnected_since < _EXIT_WITHOUT_ENGINE_S
            ):
                await asyncio.sleep(1.0)
                figures = json.dumps(self.figures.as_dict())
                replace_text(self.root / "figures.json", figures, durable=False)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._engine, self.disconnected_since = writer, None
        while line := await reader.readline():
            message = json.loads(line)
            if "launch" in message:
                self._launch(message)
            elif "stop" in message:
                self._stop(message["stop"])
            elif "forget" in message:
                for lease in message["forget"]:
                    self.ended.pop(lease, None)
            else:
                self._adopt(message["adopt"])
        if self._engine is writer:
            self._engine, self.disconnected_since = None, time.monotonic()

    def _send(self, message: dict[str, object]) -> None:
        if self._engine is not None:
            self._engine.write(json.dumps(message, separators=(",", ":")).encode() + b"\n")

    def _launch(self, order: dict[str, Any]) -> None:
        lease = int(order.pop("launch"))
        if lease in self.gangs or lease in self.ended:
            return
        gang = RehearsalGang(lease=lease, base=self.saved.get(order["job"], 0), **order)
        self.gangs[lease] = gang
        self.figures.launched += 1
        task = asyncio.create_task(self._run(gang))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _stop(self, lease: int) -> None:
        gang = self.gangs.get(lease)
        if gang is not None and gang.stop_requested_at is None:
            gang.stop_requested_at = time.monotonic()
            gang.stop.set()

    def _adopt(self, leases: list[int]) -> None:
        wanted = set(leases)
        for lease in wanted - self.gangs.keys():
            unknown: dict[str, object] = {"ended": lease, "ending": "lost", "steps": None}
            self._send(self.ended.get(lease, unknown))
        self.ended = {lease: end for lease, end in self.ended.items() if lease in wanted}
        for lease in self.gangs.keys() - wanted:
            self._stop(lease)

    async def _run(self, gang: RehearsalGang) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(gang.stop.wait(), self.start_s)
        gang.began_at = time.monotonic()
        self._send({"started": gang.lease})
        left = await asyncio.gather(*(self._member(gang, rank) for rank in range(gang.ranks)))
        steps = gang.steps()
        ending = "lost" if not all(left) else "finished" if steps >= gang.total_steps else "left"
        del self.gangs[gang.lease]
        self.saved[gang.job] = max(steps, self.saved.get(gang.job, 0)) if all(left) else gang.base
        self.figures.finished += ending == "finished"
        self.figures.lost += ending == "lost"
        if gang.stop_requested_at is not None:
            self.figures.stopped += 1
            self.figures.leave_s.append(time.monotonic() - gang.stop_requested_at)
        end: dict[str, object] = {
            "ended": gang.lease, "ending": ending, "steps": float(self.saved[gang.job])
        }  # fmt: skip
        self.ended[gang.lease] = end
        self._send(end)

    async def _member(self, gang: RehearsalGang, rank: int) -> bool:
        """Renew until the job is done or the lease must end; return False if the lease is lost."""
        connection = JsonConnection(gang.url, f"/v1/leases/{gang.lease}/renew", gang.token)
        leaving = False
        try:
            while True:
                answer = await self._renew(connection, gang, rank, leaving=leaving)
                if answer == {}:
                    return False
                if gang.steps() >= gang.total_steps and not leaving:
                    await self._renew(connection, gang, rank, leaving=False)
                    return True
                wait_s = _RETRY_S
                if answer is not None and answer["leave"]:
                    if answer["leave_after"] is not None:
                        gang.leave_after = int(answer["leave_after"])
                        return True
                    wait_s = float(answer["again_s"]) if leaving else 0.0
                    leaving = True
                    gang.frozen_at = gang.frozen_at or time.monotonic()
                elif answer is not None:
                    wait_s = next_renewal_s(answer)
                await self._pause(gang, wait_s, leaving=leaving)
        finally:
            connection.close()

    async def _pause(self, gang: RehearsalGang, wait_s: float, *, leaving: bool) -> None:
        """Wait for the next renewal, the job's last step or a stop request."""
        ahead = gang.total_steps - gang.steps()
        wait_s = min(wait_s, ahead / gang.steps_per_s + 1e-3)
        if leaving or gang.stop.is_set():
            await asyncio.sleep(wait_s if leaving else _STOPPING_RENEWAL_S)
            return
        with suppress(TimeoutError):
            await asyncio.wait_for(gang.stop.wait(), wait_s)

    async def _renew(
        self, connection: JsonConnection, gang: RehearsalGang, rank: int, *, leaving: bool
    ) -> dict[str, Any] | None:
        """Return the server's answer, None without one, an empty one if the lease is lost."""
        steps, began = gang.steps(), time.monotonic()
        body = {
            "rank": rank,
            "started": min(steps + 1, gang.total_steps),
            "steps": steps,
            "saved_steps": gang.base,
            "steps_per_s": gang.steps_per_s,
            "leaving": leaving,
            "first_step_s": began - gang.began_at,
        }
        try:
            status, answer = await connection.post(body)
        except OSError:
            return None
        self.figures.renewed += 1
        self.figures.renewal_s.append(time.monotonic() - began)
        if status in (401, 403, 404, 409):
            self.figures.refused += 1
            return {}
        return answer if status == 200 else None


def main() -> None:
    """Run the members' process of a rehearsal."""
    asyncio.run(RehearsalNodes(Path(sys.argv[1]), float(sys.argv[2])).run())


if __name__ == "__main__":
    main()
