"""Real processes under real faults: servers, keepers, jobs and databases killed again and again.

Nothing is simulated here. What must hold is looked at from outside (``kills_watch.py``), what is
killed is started again as a supervisor would, and at the end every job must have made every step
once. ``benchmarks/kills.py`` runs it for long, ``tests/e2e/test_kills.py`` for a minute.
"""

import contextlib
import errno
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.kills.deployment import Site
from tests.kills.invariants import (
    CheckpointMonitor,
    check_answer,
    check_end,
    wait_until,
)
from tests.support.postgres import Postgres

from fairlead import failpoints

_ACTIVE = 9
"""jobs that wait or run at any time, on six devices"""
_TICKET_S = 30.0
"""how long a process has to pass the point at which it is to die"""
_LAST_JOBS_S = 240.0


@dataclass
class KillRig:
    """One run: so many kills, then peace, then the reckoning."""

    site: Site
    rng: random.Random
    wanted: int
    postgres: Postgres | None = None
    most_steps: int = 300
    """of a job"""
    say: Callable[[str], None] = lambda _: None
    counts: Counter[str] = field(default_factory=Counter)
    """what was done → how often"""
    points: Counter[str] = field(default_factory=Counter)
    """point → how many processes died there"""
    problems: list[str] = field(default_factory=list)
    looks: int = 0
    """how often the server was asked for all jobs and its answer compared"""

    def __post_init__(self) -> None:
        self._open: dict[str, float] = {}
        """point → until when a process may die there"""
        self._deck: list[str] = []
        self._due: list[tuple[float, Callable[[], object]]] = []
        self.watch = CheckpointMonitor(self.site.data / "jobs")
        self._acts: dict[str, Callable[[], bool]] = {
            "server killed": self._kill_server,
            "server frozen": self._freeze_server,
            "member killed": self._kill_member,
            "gang killed": self._kill_gang,
            "keeper killed": self._kill_keeper,
            "job frozen": self._freeze_job,
            "database killed": self._kill_database,
            "database restarted": self._restart_database,
            "disk full": self._fill_disk,
            "clock set": self._set_clock,
        }
        """what → how it is done; False when there was nobody to do it to"""

    @property
    def kills(self) -> int:
        """How many times something was killed."""
        not_kills = ("disk full", "clock set", "server frozen", "job frozen")
        return sum(self.points.values()) + sum(
            count for what, count in self.counts.items() if what not in not_kills
        )

    def run(self) -> list[str]:
        """Kill and start again; return all that was found to be wrong."""
        site = self.site
        site.start()
        site.wait_until_up()
        while self.kills < self.wanted and not self.problems:
            site.supervise()
            self._collect()
            up = self._look()
            self._act(up)
            time.sleep(self.rng.uniform(0.0, 0.4))
        self._stop_faults()
        self._end()
        return self.problems

    # -- what goes wrong ------------------------------------------------------------------------

    def _act(self, up: bool) -> None:
        if not self._deck:
            # All points of a kind come up equally often; so does everything else, by its weight.
            self._deck = [*failpoints.POINTS]
            self._deck += ["server killed"] * 6 + ["member killed", "gang killed"] * 4
            self._deck += ["keeper killed"] * 3 + ["server frozen", "job frozen"] * 2
            if self.site.clock is not None:
                self._deck += ["clock set"] * 2
            if self.site.mounted:
                self._deck += ["disk full"] * 2
            if self.postgres is not None:
                self._deck += ["database killed", "database restarted"]
            self.rng.shuffle(self._deck)
        what = self._deck.pop()
        # A server that is killed over and over before it is up shows little.
        if what.startswith(("server", "database", "disk")) and not up and self.rng.random() < 0.8:
            self._deck.insert(0, what)
        elif what in failpoints.POINTS:
            kind = what.partition(".")[0]
            if any(point.startswith(kind) for point in self._open):
                self._deck.insert(0, what)  # one after the other
            else:
                self._arm_crash_point(what)
        elif not self._acts[what]():
            self._deck.insert(0, what)
        else:
            self.counts[what] += 1

    def _arm_crash_point(self, point: str) -> None:
        (self.site.home / "crashes" / point).touch()
        self._open[point] = time.monotonic() + _TICKET_S
        if point.startswith("server.start."):
            self.counts["server killed"] += self._kill_server()

    def _kill_server(self) -> bool:
        return self.site.kill()

    def _freeze_server(self) -> bool:
        process = self.site.process
        assert process is not None
        self._signal([process.pid], signal.SIGSTOP)
        time.sleep(self.rng.uniform(0.5, 3.0))
        return self._signal([process.pid], signal.SIGCONT)

    def _freeze_job(self) -> bool:
        """Stop a gang for longer than its lease; it wakes up behind the fence, if at all."""
        found = self.site.running()
        if not found:
            return False
        _, members = self.rng.choice(found)
        self._later(self.rng.uniform(3.0, 9.0), lambda: self._signal(members, signal.SIGCONT))
        return self._signal(members, signal.SIGSTOP)

    def _kill_member(self) -> bool:
        found = [pid for _, members in self.site.running() for pid in members]
        return bool(found) and self._signal([self.rng.choice(found)], signal.SIGKILL)

    def _kill_gang(self) -> bool:
        found = [members for _, members in self.site.running() if len(members) > 1]
        return bool(found) and self._signal(self.rng.choice(found), signal.SIGKILL)

    def _kill_keeper(self) -> bool:
        found = [keeper for keeper, _ in self.site.running()]
        return bool(found) and self._signal([self.rng.choice(found)], signal.SIGKILL)

    def _kill_database(self) -> bool:
        assert self.postgres is not None
        self.postgres.kill()
        time.sleep(self.rng.uniform(0.0, 2.0))
        self.postgres.start()
        return True

    def _restart_database(self) -> bool:
        assert self.postgres is not None
        self.postgres.restart()
        return True

    def _fill_disk(self) -> bool:
        balloon = self.site.data / "balloon"
        with balloon.open("wb", buffering=0) as file:
            for size in (1 << 20, 1 << 12, 1):
                with contextlib.suppress(OSError):
                    while True:
                        file.write(bytes(size))
        self._later(self.rng.uniform(1.0, 4.0), lambda: balloon.unlink(missing_ok=True))
        return True

    def _set_clock(self) -> bool:
        assert self.site.clock is not None
        self.site.clock.shift(self.rng.randint(-100_000, 100_000))
        return True

    def _signal(self, pids: list[int], number: int) -> bool:
        """Send a signal to all of these that live; tell whether one does."""
        reached = False
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
                reached = True
        return reached

    def _later(self, after_s: float, call: Callable[[], object]) -> None:
        self._due.append((time.monotonic() + after_s, call))

    # -- between the faults ---------------------------------------------------------------------

    def _collect(self) -> None:
        """Do what is due, and count the processes that have died where they were to."""
        now = time.monotonic()
        due = [call for at, call in self._due if at <= now]
        self._due = [(at, call) for at, call in self._due if at > now]
        for call in due:
            call()
        for point, until in [*self._open.items()]:
            ticket = self.site.home / "crashes" / point
            if not ticket.exists():
                self.points[point] += 1
                del self._open[point]
            elif until < now:
                ticket.unlink(missing_ok=True)
                del self._open[point]

    def _look(self) -> bool:
        """Compare what the server says with what was made, and keep it busy; tell if it is up."""
        site = self.site
        jobs = site.jobs()
        if jobs is not None:
            self.looks += 1
            self.problems += check_answer(site.home, jobs, site.known)
            active = sum(job["state"] not in ("finished",) for job in jobs)
            for _ in range(_ACTIVE - active):
                gang = self.rng.choice((1, 1, 2))
                site.submit(
                    steps=self.rng.randint(80, self.most_steps),
                    gang=gang,
                    workload="big" if gang > 1 else self.rng.choice(("big", "small")),
                )
        self._collect_complaints()
        self.say(f"{self.kills} kills, {site.starts} starts, {len(site.known)} jobs")
        return jobs is not None

    def _collect_complaints(self) -> None:
        self.problems += self.watch.complaints
        self.watch.complaints.clear()
        found = (self.site.home / "complaints").read_text(encoding="utf-8")
        self.problems += found.splitlines()

    # -- the end --------------------------------------------------------------------------------

    def _stop_faults(self) -> None:
        for _, call in self._due:
            call()
        for point in self._open:
            (self.site.home / "crashes" / point).unlink(missing_ok=True)
        self._due.clear()
        if self.site.clock is not None:
            self.site.clock.shift(0)
        # A job that was killed often waits for its next try; a restart tries all at once.
        self.site.kill()

    def _end(self) -> None:
        site = self.site
        if not self.problems:
            site.wait_until_up()

            def over() -> bool:
                site.supervise()
                return site.unfinished() == 0

            wait_until(over, _LAST_JOBS_S)
            self.problems += check_end(site.home, site.jobs() or [], site.known)
        self.watch.stop()
        self._collect_complaints()
        left = site.running()
        if left and not self.problems:
            self.problems.append(f"keepers that nobody wants live on: {left}")


def needs() -> list[str]:
    """Return what cannot be tried here, and why."""
    from tests.kills import shifted_clock  # noqa: PLC0415
    from tests.support import postgres  # noqa: PLC0415

    found = []
    if os.geteuid() != 0:
        found.append(f"a full disk: mounting one needs root ({errno.errorcode[errno.EPERM]})")
    if shifted_clock.missing():
        found.append(f"clocks that jump: {shifted_clock.missing()}")
    if postgres.missing():
        found.append(f"databases that die: {postgres.missing()}")
    return found
