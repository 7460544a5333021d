"""Writes one rank's file of a checkpoint, and commits the checkpoint once all are written."""

from collections.abc import Sequence
from typing import NamedTuple

from fairlead import failpoints
from fairlead.block_file import Payload
from fairlead.job import checkpoint
from fairlead.job.saving.memory_file import MemoryFile


class Made(NamedTuple):
    """The steps that a rank's state holds."""

    lease: int
    rank: int
    ranks: int
    steps: int
    positions: tuple[int, ...] = ()
    """of a copy: the items that it is past, which are more than its steps"""


def save(directory: str, made: Made, chunks: Sequence[Payload], spare: MemoryFile | None) -> None:
    """Write a rank's state; return once all ranks' states are committed."""
    lease, rank, ranks, steps, positions = made
    checkpoint.write(directory, lease, steps, rank, *chunks, spare=spare)
    failpoints.point("job.checkpoint.written")
    if rank == 0:
        checkpoint.commit(directory, lease, steps, ranks, positions=positions)
    elif not checkpoint.wait_for_commit(directory, lease, steps):
        checkpoint.require(directory, lease)
        raise TimeoutError("rank 0 did not commit the checkpoint")
    failpoints.point("job.commit.after")
