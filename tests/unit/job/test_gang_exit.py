"""A gang leaves after the same step, even if the server dies meanwhile."""

import math
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from fairlead.job import lease as leases
from fairlead.job.gang_exit import GangExit
from fairlead.live.leases.open_leases import OpenLease, RenewalLoad
from fairlead.live.leases.renewal import Renewal

NUMBER = 7


class Server:
    """The server's side of one lease; it dies after the first member has its last step."""

    def __init__(self, members: int) -> None:
        self._lock = threading.Lock()
        self._members = members
        self._lease = OpenLease(NUMBER, "j", members, time.time() + 60)
        self.answered: list[int] = []

    def leave(self) -> None:
        self._lease.leaving = True

    def post(self, rank: int, body: dict[str, object]) -> tuple[int, dict[str, Any]]:
        with self._lock:
            fields = {name: body[name] for name in body.keys() & Renewal.__slots__}
            renewal = Renewal(**fields)  # type: ignore[arg-type]  # as the server validates it
            answer = self._lease.renew(time.time(), renewal, RenewalLoad(self._members, 1))
            if answer["leave_after"] is not None:
                self.answered.append(rank)
                if len(self.answered) == 1:  # the next server knows only that the lease must end
                    self._lease = OpenLease(NUMBER, "j", self._members, math.inf, leaving=True)
            return 200, {**answer}


class Member(leases.Lease):
    """A member that talks to the server without a network."""

    def __init__(self, server: Server, rank: int, directory: Path, members: int = 2) -> None:
        gang_exit = GangExit(str(directory), NUMBER, rank, members)
        super().__init__("http://x", NUMBER, "t", rank=rank, valid_s=60.0, gang_exit=gang_exit)
        self._server = server

    def _post(self, path: str, body: dict[str, object]) -> tuple[int, dict[str, Any]]:
        del path
        return self._server.post(self._rank, body)


def leave_all(server: Server, members: list[Member]) -> None:
    """Start the members at different steps, preempt their lease, and wait until all leave."""

    def make_all(member: Member) -> None:
        while member.may_start():
            pass

    for number, member in enumerate(members):
        member.begin(0)
        for _ in range(10 + number):
            assert member.may_start()
    server.leave()
    for member in members:
        member.check_now()
    threads = [threading.Thread(target=make_all, args=(m,), daemon=True) for m in members]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60.0)
    assert not any(thread.is_alive() for thread in threads)


def test_a_gang_leaves_together_if_the_server_dies_before_all_members_know(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "_AGREEMENT_TIMEOUT_S", 600.0)
    server = Server(2)
    members = [Member(server, rank, tmp_path) for rank in range(2)]
    leave_all(server, members)
    assert members[0].started == members[1].started
    assert server.answered[0] in (0, 1)


def test_members_without_a_common_directory_leave_after_the_servers_step(
    tmp_path: Path,
) -> None:
    server = Server(3)
    server.answered.append(-1)  # it does not die
    nodes = [tmp_path / "here", tmp_path / "here", tmp_path / "there"]
    for node in set(nodes):
        node.mkdir()
    members = [Member(server, rank, node, 3) for rank, node in enumerate(nodes)]
    leave_all(server, members)
    assert len({member.started for member in members}) == 1


def test_members_with_different_counts_continue_to_the_greatest(tmp_path: Path) -> None:
    first, second, other = (
        GangExit(str(tmp_path), lease, rank, 2) for lease, rank in ((7, 0), (7, 1), (70, 1))
    )
    assert not first.has_begun()
    assert other.last_step(99) is None
    assert first.last_step(5) is None
    assert second.has_begun()
    assert second.last_step(8) == 8
    assert first.last_step(6) == 8  # its first announcement counts
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        *("7.0.5.leaves", "7.1.8.leaves", "70.1.99.leaves"),
    ]


def test_an_announcement_that_cannot_be_written_does_not_count(tmp_path: Path) -> None:
    alone = GangExit(str(tmp_path / "none"), 7, 0, 1)
    assert not alone.has_begun()
    assert alone.last_step(5) is None
