"""Repeatedly kill real servers, keepers, jobs and databases, and check the invariants.

Nothing is simulated. ``invariants.py`` checks from outside, killed servers are restarted as a
supervisor would, and at the end every job must have made every step exactly once.
``benchmarks/kills.py`` runs it for long, ``tests/e2e/server/test_kills.py`` for a minute.
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

from tests.kills.deployment import KillSite
from tests.kills.invariants import (
    CheckpointMonitor,
    check_answer,
    check_end,
    check_leases,
    wait_until,
)
from tests.kills.phases import Phases, is_of_copies, is_of_growth
from tests.support.postgres import Postgres

from fairlead import failpoints

_ARMED_S = 30.0
"""seconds until an armed failpoint is disarmed"""
_CALM = 0.95
"""part of the other faults that are left out while a failpoint is armed that few jobs reach"""
_LAST_JOBS_S = 240.0
_MAX_KILLS_FACTOR = 4
"""times the wanted kills after which faults end, even if too few failpoints were met"""


@dataclass
class KillRig:
    """One run: a number of kills, then all jobs finish, then the final checks."""

    site: KillSite
    rng: random.Random
    wanted: int
    postgres: Postgres | None = None
    most_steps: int = 300
    """maximum steps of a job"""
    wanted_points: int = 0
    """different failpoints at which processes are to die before the faults end"""
    say: Callable[[str], None] = lambda _: None
    counts: Counter[str] = field(default_factory=Counter)
    """fault → number of injections"""
    points: Counter[str] = field(default_factory=Counter)
    """failpoint → number of processes that died there"""
    problems: list[str] = field(default_factory=list)
    polls: int = 0
    """number of checked job lists"""

    def __post_init__(self) -> None:
        self._open: dict[str, float] = {}
        """failpoint → time when it is disarmed"""
        self._deck: list[str] = []
        self._due: list[tuple[float, Callable[[], object]]] = []
        self._phases = Phases(self.site)
        self.monitor = CheckpointMonitor(self.site.data / "jobs")
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
        """fault → handler; returns False without a target"""

    @property
    def kills(self) -> int:
        """Number of kills."""
        not_kills = ("disk full", "clock set", "server frozen", "job frozen")
        return sum(self.points.values()) + sum(
            count for what, count in self.counts.items() if what not in not_kills
        )

    def run(self) -> list[str]:
        """Inject faults and restart; return the problems."""
        site = self.site
        site.start()
        site.wait_until_up()
        while self._wants_more() and not self.problems:
            site.supervise()
            self._collect()
            up = self._poll()
            self._act(up)
            time.sleep(self.rng.uniform(0.0, 0.4))
        self._stop_faults()
        self._end()
        return self.problems

    def _wants_more(self) -> bool:
        """Return whether kills or failpoints are missing; not for ever, as a point may be rare."""
        if self.kills < self.wanted:
            return True
        few = len(self.points) < self.wanted_points
        return few and self.kills < _MAX_KILLS_FACTOR * self.wanted

    # -- faults ---------------------------------------------------------------------------------

    def _act(self, up: bool) -> None:
        # Under many faults hardly any job gets as far as to these points.
        if any(map(_is_rare, self._open)) and self.rng.random() < _CALM:
            return
        if not self._deck:
            # All failpoints come up equally often, other faults by weight.
            self._deck = self._points_passed()
            # Few of these are met while they are armed.
            self._deck += [point for point in self._deck if _is_rare(point)] * 2
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
        # Killing a server repeatedly during its start shows little.
        if what.startswith(("server", "database", "disk")) and not up and self.rng.random() < 0.8:
            self._deck.insert(0, what)
        elif what in failpoints.POINTS:
            process = what.partition(".")[0]
            if any(point.startswith(process) for point in self._open):
                self._deck.insert(0, what)  # one armed failpoint per process type
            else:
                self._arm_crash_point(what)
        elif not self._acts[what]():
            self._deck.insert(0, what)
        else:
            self.counts[what] += 1

    def _points_passed(self) -> list[str]:
        """Return the failpoints that processes of this site pass."""
        missed = set() if self.site.offload_gib > 0 else {"park", "resume", "prepare"}
        missed.add("spare")  # its checkpoints are small, on a disk
        resizes = self.site.elastic and self.site.offload_gib > 0
        return [
            point
            for point in failpoints.POINTS
            if point.split(".")[1] not in missed
            and (resizes or not is_of_growth(point))
            and (self.site.copies or not is_of_copies(point))
        ]

    def _arm_crash_point(self, point: str) -> None:
        (self.site.home / "crashes" / point).touch()
        self._open[point] = time.monotonic() + _ARMED_S
        if point.startswith("server.start."):
            self.counts["server killed"] += self._kill_server()
        self._phases.favour(point)
        if point.startswith("server.policy."):
            round_s = self.site.round_s * self.rng.uniform(0.9, 1.1)
            policies = [policy for policy in self.site.policies if policy]
            self.site.change_policy(self.rng.choice(policies), round_s)

    def _kill_server(self) -> bool:
        return self.site.kill()

    def _freeze_server(self) -> bool:
        process = self.site.process
        assert process is not None
        self._signal([process.pid], signal.SIGSTOP)
        time.sleep(self.rng.uniform(0.5, 3.0))
        return self._signal([process.pid], signal.SIGCONT)

    def _freeze_job(self) -> bool:
        """Freeze a gang for longer than its lease; it wakes up fenced, if at all."""
        leases = self.site.running()
        if not leases:
            return False
        _, members = self.rng.choice(leases)
        self._later(self.rng.uniform(3.0, 9.0), lambda: self._signal(members, signal.SIGCONT))
        return self._signal(members, signal.SIGSTOP)

    def _kill_member(self) -> bool:
        pids = [pid for _, members in self.site.running() for pid in members]
        return bool(pids) and self._signal([self.rng.choice(pids)], signal.SIGKILL)

    def _kill_gang(self) -> bool:
        gangs = [members for _, members in self.site.running() if len(members) > 1]
        return bool(gangs) and self._signal(self.rng.choice(gangs), signal.SIGKILL)

    def _kill_keeper(self) -> bool:
        keepers = [keeper for keeper, _ in self.site.running()]
        return bool(keepers) and self._signal([self.rng.choice(keepers)], signal.SIGKILL)

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
        """Send a signal to all live processes of these; return whether there is one."""
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
        """Make due calls and count the processes that died at failpoints."""
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

    def _poll(self) -> bool:
        """Check the server's job list and submit new jobs; return whether the server answers."""
        site = self.site
        jobs = site.jobs()
        if jobs is not None:
            self.polls += 1
            self.problems += check_answer(site.home, jobs, site.known)
            active = sum(job["state"] not in ("finished",) for job in jobs)
            self._phases.follow(self.rng)
            mix = self._phases.jobs
            for _ in range(mix.active - active):
                gang = self.rng.choice(mix.gangs)
                site.submit(
                    steps=mix.longer * self.rng.randint(80, self.most_steps),
                    gang=gang,
                    workload="big" if gang > 1 else self.rng.choice(("big", "small")),
                )
        self._collect_complaints()
        self.say(f"{self.kills} kills, {site.starts} starts, {len(site.known)} jobs")
        return jobs is not None

    def _collect_complaints(self) -> None:
        self.problems += self.monitor.complaints
        self.monitor.complaints.clear()
        text = (self.site.home / "complaints").read_text(encoding="utf-8")
        self.problems += text.splitlines()

    # -- the end --------------------------------------------------------------------------------

    def _stop_faults(self) -> None:
        for _, call in self._due:
            call()
        for point in self._open:
            (self.site.home / "crashes" / point).unlink(missing_ok=True)
        self._due.clear()
        if self.site.clock is not None:
            self.site.clock.shift(0)
        # Jobs in retry backoff would wait; a restart retries all at once.
        self.site.kill()

    def _end(self) -> None:
        site = self.site
        if not self.problems:
            site.wait_until_up()

            def finished() -> bool:
                site.supervise()
                return site.unfinished() == 0

            wait_until(finished, _LAST_JOBS_S)
            jobs = site.jobs() or []
            self.problems += check_end(site.home, jobs, site.known)
            for job in jobs:
                self.problems += check_leases(site.home, job, site.leases(job["id"]) or [])
        self.monitor.stop()
        self._collect_complaints()
        left = site.running()
        if left and not self.problems:
            self.problems.append(f"orphaned keepers are still alive: {left}")


def _is_rare(point: str) -> bool:
    return is_of_growth(point) or is_of_copies(point)


def needs() -> list[str]:
    """Return the faults that cannot be injected here, with reasons."""
    from tests.kills import shifted_clock  # noqa: PLC0415
    from tests.support import postgres  # noqa: PLC0415

    reasons = []
    if os.geteuid() != 0:
        reasons.append(f"disk full: mounting one needs root ({errno.errorcode[errno.EPERM]})")
    if shifted_clock.missing():
        reasons.append(f"clock jumps: {shifted_clock.missing()}")
    if postgres.missing():
        reasons.append(f"database kills: {postgres.missing()}")
    return reasons
