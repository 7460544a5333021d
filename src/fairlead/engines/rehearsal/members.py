"""The members of rehearsed leases, thousands in one process: they renew, leave and finish.

``python -m fairlead.engines.rehearsal.members DIR START_S`` listens on ``DIR/socket`` for the
engine's words, one JSON object a line, and answers in kind. A member does what the job library
does: it counts steps at its speed, renews its lease over a connection of its own, and leaves with
its gang after the same step. Steps that a lease has left are where the job's next one begins.
``DIR/figures.json`` says how often and how fast that was. It ends when no engine has been there
for a minute.
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

from fairlead.engines.rehearsal.http_client import Connection
from fairlead.job.lease import next_renewal_s

_EXIT_WITHOUT_ENGINE_S = 60.0
_RETRY_S = 0.5
_AGAIN_S = 0.05
_KEPT = 50_000
_LONGEST_LINE = 1 << 26


@dataclass
class Figures:
    """What was seen, for whoever rehearses."""

    launched: int = 0
    stopped: int = 0
    finished: int = 0
    lost: int = 0
    renewed: int = 0
    refused: int = 0
    renewal_s: deque[float] = field(default_factory=lambda: deque(maxlen=_KEPT))
    """times of recent renewals"""
    leave_s: deque[float] = field(default_factory=lambda: deque(maxlen=_KEPT))
    """from being told to stop to having left"""

    def written(self) -> dict[str, object]:
        """Return the counts, and quantiles of the times."""
        found: dict[str, object] = {
            name: value for name, value in vars(self).items() if isinstance(value, int)
        }
        for name in ("renewal_s", "leave_s"):
            times = sorted(getattr(self, name))
            for part in (0.5, 0.99, 1.0) if times else ():
                found[f"{name} {part:g}"] = times[min(int(part * len(times)), len(times) - 1)]
        return found


@dataclass(kw_only=True)
class Gang:
    """The members of one lease."""

    lease: int
    job: str
    ranks: int
    url: str
    token: str
    steps_per_s: float
    total_steps: int
    base: int
    """steps that the job's earlier leases have left"""
    began_at: float = 0.0
    told_to_stop_at: float | None = None
    leave_after: int | None = None
    frozen_at: float | None = None
    stop: asyncio.Event = field(default_factory=asyncio.Event)

    def steps(self) -> int:
        """Return how many steps have been made by now."""
        until = self.frozen_at or time.monotonic()
        made = self.base + int((until - self.began_at) * self.steps_per_s)
        most = self.total_steps if self.leave_after is None else self.leave_after
        return min(max(made, self.leave_after or 0), most)


class Nodes:
    """All gangs, and the engine that is told about them."""

    def __init__(self, root: Path, start_s: float) -> None:
        self.root, self.start_s = root, start_s
        self.gangs: dict[int, Gang] = {}
        self.saved: dict[str, int] = {}
        """job → steps that are left"""
        self.ended: dict[int, dict[str, object]] = {}
        """what could not be told yet, or may be asked for again"""
        self.figures = Figures()
        self.disconnected_since: float | None = time.monotonic()
        self._engine: asyncio.StreamWriter | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Serve engines, one after the other, until none comes any more."""
        path = self.root / "socket"
        path.unlink(missing_ok=True)
        server = await asyncio.start_unix_server(self._serve, str(path), limit=_LONGEST_LINE)
        (self.root / "pid").write_text(str(os.getpid()), encoding="ascii")
        async with server:
            while (
                self.disconnected_since is None
                or time.monotonic() - self.disconnected_since < _EXIT_WITHOUT_ENGINE_S
            ):
                await asyncio.sleep(1.0)
                aside = self.root / "figures.tmp"
                aside.write_text(json.dumps(self.figures.written()), encoding="ascii")
                aside.replace(self.root / "figures.json")

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._engine, self.disconnected_since = writer, None
        while line := await reader.readline():
            told = json.loads(line)
            if "launch" in told:
                self._launch(told)
            elif "stop" in told:
                self._stop(told["stop"])
            elif "forget" in told:
                for lease in told["forget"]:
                    self.ended.pop(lease, None)
            else:
                self._adopt(told["adopt"])
        if self._engine is writer:
            self._engine, self.disconnected_since = None, time.monotonic()

    def _tell(self, what: dict[str, object]) -> None:
        if self._engine is not None:
            self._engine.write(json.dumps(what, separators=(",", ":")).encode() + b"\n")

    def _launch(self, told: dict[str, Any]) -> None:
        lease = int(told.pop("launch"))
        if lease in self.gangs or lease in self.ended:
            return
        gang = Gang(lease=lease, base=self.saved.get(told["job"], 0), **told)
        self.gangs[lease] = gang
        self.figures.launched += 1
        task = asyncio.create_task(self._run(gang))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _stop(self, lease: int) -> None:
        gang = self.gangs.get(lease)
        if gang is not None and gang.told_to_stop_at is None:
            gang.told_to_stop_at = time.monotonic()
            gang.stop.set()

    def _adopt(self, leases: list[int]) -> None:
        wanted = set(leases)
        for lease in wanted - self.gangs.keys():
            unknown: dict[str, object] = {"ended": lease, "ending": "lost", "steps": None}
            self._tell(self.ended.get(lease, unknown))
        self.ended = {lease: told for lease, told in self.ended.items() if lease in wanted}
        for lease in self.gangs.keys() - wanted:
            self._stop(lease)

    async def _run(self, gang: Gang) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(gang.stop.wait(), self.start_s)
        gang.began_at = time.monotonic()
        self._tell({"started": gang.lease})
        left = await asyncio.gather(*(self._member(gang, rank) for rank in range(gang.ranks)))
        steps = gang.steps()
        ending = "lost" if not all(left) else "finished" if steps >= gang.total_steps else "left"
        del self.gangs[gang.lease]
        self.saved[gang.job] = max(steps, self.saved.get(gang.job, 0)) if all(left) else gang.base
        self.figures.finished += ending == "finished"
        self.figures.lost += ending == "lost"
        if gang.told_to_stop_at is not None:
            self.figures.stopped += 1
            self.figures.leave_s.append(time.monotonic() - gang.told_to_stop_at)
        told: dict[str, object] = {
            "ended": gang.lease, "ending": ending, "steps": float(self.saved[gang.job])
        }  # fmt: skip
        self.ended[gang.lease] = told
        self._tell(told)

    async def _member(self, gang: Gang, rank: int) -> bool:
        """Renew until the job is done or the lease is to end; False if the lease is over."""
        connection = Connection(gang.url, f"/v1/leases/{gang.lease}/renew", gang.token)
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

    async def _pause(self, gang: Gang, wait_s: float, *, leaving: bool) -> None:
        """Wait for the next renewal, the job's last step or the word to stop."""
        ahead = gang.total_steps - gang.steps()
        wait_s = min(wait_s, ahead / gang.steps_per_s + 1e-3)
        if leaving or gang.stop.is_set():
            await asyncio.sleep(wait_s if leaving else _AGAIN_S)
            return
        with suppress(TimeoutError):
            await asyncio.wait_for(gang.stop.wait(), wait_s)

    async def _renew(
        self, connection: Connection, gang: Gang, rank: int, *, leaving: bool
    ) -> dict[str, Any] | None:
        """Return the server's answer, None if it is away, nothing if the lease is over."""
        steps, began = gang.steps(), time.monotonic()
        body = {
            "rank": rank,
            "started": min(steps + 1, gang.total_steps),
            "steps": steps,
            "saved_steps": gang.base,
            "steps_per_s": gang.steps_per_s,
            "leaving": leaving,
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
    """Run the members of a rehearsal."""
    asyncio.run(Nodes(Path(sys.argv[1]), float(sys.argv[2])).run())


if __name__ == "__main__":
    main()
