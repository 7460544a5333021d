"""A gang leaves after the same step, whatever becomes of the server meanwhile."""

import math
import threading
import time
from pathlib import Path
from typing import Any

from fairlead.job import lease as leases
from fairlead.job.parting import Parting
from fairlead.live.leases import Load, OpenLease

NUMBER, MEMBERS = 7, 2


class Server:
    """The server's side of one lease; it dies once it has told the first member when to leave."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lease = OpenLease(NUMBER, "j", MEMBERS, time.time() + 60)
        self.told: list[int] = []

    def leave(self) -> None:
        self._lease.leaving = True

    def post(self, rank: int, body: dict[str, object]) -> tuple[int, dict[str, Any]]:
        with self._lock:
            answer = self._lease.renew(time.time(), body, Load(MEMBERS, 1))
            if answer["leave_after"] is not None:
                self.told.append(rank)
                if len(self.told) == 1:  # the next server knows that it is to leave, no more
                    self._lease = OpenLease(NUMBER, "j", MEMBERS, math.inf, leaving=True)
            return 200, answer


class Member(leases.Lease):
    """A member that talks to the server without a network."""

    def __init__(self, server: Server, rank: int, directory: Path) -> None:
        parting = Parting(str(directory), NUMBER, rank, MEMBERS)
        super().__init__("http://x", NUMBER, "t", rank=rank, valid_s=60.0, parting=parting)
        self._server = server

    def _post(self, path: str, body: dict[str, object]) -> tuple[int, dict[str, Any]]:
        del path
        return self._server.post(self._rank, body)


def make_all(member: Member) -> None:
    while member.may_start():
        pass


def test_a_server_that_dies_before_it_has_told_all_members_holds_nobody_up(tmp_path: Path) -> None:
    server = Server()
    members = [Member(server, rank, tmp_path) for rank in range(MEMBERS)]
    for member, steps in zip(members, (10, 12), strict=True):
        member.begin(0)
        for _ in range(steps):
            assert member.may_start()
    server.leave()
    for member in members:
        member.ask_to_leave()
    making = [threading.Thread(target=make_all, args=(member,), daemon=True) for member in members]
    for thread in making:
        thread.start()
    for thread in making:
        thread.join(10.0)
    assert not any(thread.is_alive() for thread in making)
    assert members[0].started == members[1].started >= 12


def test_members_that_say_different_counts_go_on_to_the_greatest(tmp_path: Path) -> None:
    first, second, other = (
        Parting(str(tmp_path), lease, rank, 2) for lease, rank in ((7, 0), (7, 1), (70, 1))
    )
    assert not first.has_begun()
    assert other.last_step(99) is None
    assert first.last_step(5) is None
    assert second.has_begun()
    assert second.last_step(8) == 8
    assert first.last_step(6) == 8  # what it said first counts
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        *("7.0.5.leaves", "7.1.8.leaves", "70.1.99.leaves"),
    ]


def test_what_cannot_be_written_is_not_agreed_upon(tmp_path: Path) -> None:
    alone = Parting(str(tmp_path / "none"), 7, 0, 1)
    assert not alone.has_begun()
    assert alone.last_step(5) is None
