"""A lease over several nodes: one order per node, and one end for all of them."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from fairlead.engines.base import Ended, LaunchOrder
from fairlead.engines.keeper import lease_dir
from fairlead.job import checkpoint
from fairlead.model.lease_outcome import WORST_FIRST
from fairlead.untrusted_file import UnusableFileError


def combined_outcome(order: LaunchOrder, parts: list[Ended]) -> Ended:
    """Return the end of a lease from the ends of its parts."""
    if len(parts) == 1:
        return parts[0]
    steps = _most_steps(parts)
    ending = min((part.ending for part in parts), key=WORST_FIRST.index)
    if ending == "left" and any(part.ending == "finished" for part in parts):
        done = order.total_steps is not None and (steps or 0.0) >= order.total_steps
        ending = "finished" if done else "left"
    if ending != "finished":
        # A part that ended by itself counts steps that no checkpoint may have.
        steps = _most_steps([part for part in parts if part.ending != "finished"])
    # The part that failed first may have no message; those that were stopped for it have one.
    speaking = sorted(
        (part for part in parts if part.message), key=lambda part: part.ending != ending
    )
    codes = tuple(code for part in parts for code in part.exit_codes)
    fence = max((part.fence for part in parts if part.fence is not None), default=None)
    message = speaking[0].message if speaking else ""
    return Ended(order.lease, ending, steps, message, codes, fence)


def _most_steps(parts: Sequence[Ended]) -> float | None:
    return max((part.steps for part in parts if part.steps is not None), default=None)


def conclude(directory: Path, order: LaunchOrder, parts: Sequence[Ended | None]) -> Ended | None:
    """Persist and return the end of a lease, None while one of its parts runs."""
    ended_parts = [part for part in parts if part is not None]
    if len(ended_parts) < len(parts):
        return None
    ended = combined_outcome(order, ended_parts)
    with suppress(FileNotFoundError, NotADirectoryError):  # a job has removed the directory
        lease_dir.write_ended(directory, ended)
    return ended


def split_by_node(order: LaunchOrder) -> list[LaunchOrder]:
    """Return one order per node; ranks are numbered through the nodes."""
    nodes = dict.fromkeys(node for node, _ in order.devices)
    accelerator = dict(zip(order.devices, order.accelerators, strict=True))
    orders: list[LaunchOrder] = []
    rank = 0
    for node in nodes:
        # By number, as cluster managers list allocated devices: so each gets its accelerator.
        devices = tuple(sorted(device for device in order.devices if device[0] == node))
        orders.append(
            replace(
                order,
                devices=devices,
                accelerators=tuple(accelerator[device] for device in devices),
                first_rank=rank,
                world_size=len(order.devices),
            )
        )
        rank += len(devices)
    return orders


def saved_steps(order: LaunchOrder) -> float | None:
    """Return the steps of the committed checkpoint, None without one."""
    try:
        committed = checkpoint.latest(order.checkpoint_dir)
    except UnusableFileError:  # the job has damaged it
        return None
    return None if committed is None else float(committed.steps)
