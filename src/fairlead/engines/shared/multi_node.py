"""A lease over several nodes: an order for each of them, and one end of all."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from fairlead.engines.base import Ended, LeaseOutcome, Order
from fairlead.engines.keeper import lease_dir
from fairlead.job import checkpoint

_OUTCOMES_WORST_FIRST: tuple[LeaseOutcome, ...] = ("refused", "lost", "failed", "left", "finished")


def together(order: Order, parts: list[Ended]) -> Ended:
    """Return the end of a lease whose parts have ended like this."""
    if len(parts) == 1:
        return parts[0]
    steps = max((one.steps for one in parts if one.steps is not None), default=None)
    ending = min((one.ending for one in parts), key=_OUTCOMES_WORST_FIRST.index)
    if ending == "left" and any(one.ending == "finished" for one in parts):
        done = order.total_steps is not None and (steps or 0.0) >= order.total_steps
        ending = "finished" if done else "left"
    # Who failed first may have nothing to say; those who were stopped for it say why.
    said = sorted((one for one in parts if one.message), key=lambda one: one.ending != ending)
    codes = tuple(code for one in parts for code in one.exit_codes)
    return Ended(order.lease, ending, steps, said[0].message if said else "", codes)


def end(directory: Path, order: Order, parts: Sequence[Ended | None]) -> Ended | None:
    """Write down and return how a lease ended, None while a part of it has not."""
    found = [one for one in parts if one is not None]
    if len(found) < len(parts):
        return None
    ended = together(order, found)
    lease_dir.write_ended(directory, ended)
    return ended


def split(order: Order) -> list[Order]:
    """Return an order for each node; ranks run through the nodes one after the other."""
    nodes = dict.fromkeys(node for node, _ in order.devices)
    kind = dict(zip(order.devices, order.accelerators, strict=True))
    made: list[Order] = []
    rank = 0
    for node in nodes:
        # By number, as cluster managers list what they give: so each accelerator is the right one.
        mine = tuple(sorted(device for device in order.devices if device[0] == node))
        made.append(
            replace(
                order,
                devices=mine,
                accelerators=tuple(kind[device] for device in mine),
                first_rank=rank,
                world_size=len(order.devices),
            )
        )
        rank += len(mine)
    return made


def saved_steps(order: Order) -> float | None:
    """Return the steps of the checkpoint in force."""
    found = checkpoint.latest(order.checkpoint_dir)
    return None if found is None else float(found.steps)
