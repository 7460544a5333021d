"""Recovery of leases after a restart of the scheduler, from their directories."""

import secrets
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from fairlead.engines.base import Ended
from fairlead.engines.keeper.lease_dir import lost_before_start, read_ended


@dataclass(frozen=True, slots=True)
class RecoveredLeases:
    """Directories of leases, by the action that recovery takes."""

    wanted: list[Path]
    """directories of open leases, to be followed"""
    orphans: list[Path]
    """directories of leases that run and are no longer open, to be stopped"""
    ended: list[int]
    """leases that have ended and are no longer open, to be forgotten"""
    never_started: list[Ended]
    """ends of open leases without a directory: the server crashed before it wrote one"""


def classify_leases(directories: Iterable[Path], wanted: Collection[int]) -> RecoveredLeases:
    """Return the leases of these directories and the open leases without one."""
    listed = {int(path.name): path for path in sorted(directories)}
    others = {lease: path for lease, path in listed.items() if lease not in wanted}
    ended = [lease for lease, path in others.items() if read_ended(path, lease) is not None]
    return RecoveredLeases(
        wanted=[path for lease, path in listed.items() if lease in wanted],
        orphans=[path for lease, path in others.items() if lease not in ended],
        ended=ended,
        never_started=[lost_before_start(lease) for lease in wanted if lease not in listed],
    )


def scheduler_tag(path: Path) -> str:
    """Return the tag that tells this scheduler's leases from those of others on the cluster."""
    with suppress(FileExistsError), path.open("x", encoding="ascii") as file:
        file.write(secrets.token_hex(4))
    return path.read_text(encoding="ascii")
