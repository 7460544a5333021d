"""What a scheduler that was started again finds of its leases, by their directories."""

import secrets
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from fairlead.engines.base import Ended


@dataclass(frozen=True, slots=True)
class Found:
    """Directories of leases, by what is to become of them."""

    wanted: list[Path]
    strays: list[Path]
    """of leases that have not ended and that nobody wants"""
    over: list[int]
    """leases that have ended and that nobody asks about"""
    never: list[Ended]
    """of leases that are wanted and were never started: the crash came before their directories"""


def classify_leases(directories: Iterable[Path], wanted: Collection[int]) -> Found:
    """Return what there is of these leases and of others."""
    listed = {int(path.name): path for path in sorted(directories)}
    others = {lease: path for lease, path in listed.items() if lease not in wanted}
    over = [lease for lease, path in others.items() if (path / "exit.json").exists()]
    return Found(
        wanted=[path for lease, path in listed.items() if lease in wanted],
        strays=[path for lease, path in others.items() if lease not in over],
        over=over,
        never=[lost_before_start(lease) for lease in wanted if lease not in listed],
    )


def lost_before_start(lease: int) -> Ended:
    """Return the end of a lease that was ordered and never reached its node."""
    return Ended(lease, "lost", None, "it was never started")


def tag(path: Path) -> str:
    """Return what tells our leases from those of other schedulers on the same cluster."""
    with suppress(FileExistsError), path.open("x", encoding="ascii") as file:
        file.write(secrets.token_hex(4))
    return path.read_text(encoding="ascii")
