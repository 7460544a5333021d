"""From counts of devices by node to the devices themselves, moving as few jobs as possible."""

from collections.abc import Mapping
from itertools import islice

from fairlead.mechanisms.hadar.find_alloc import DeviceCells, DeviceDeal

Devices = tuple[int, ...]


def choose_devices(
    cells: DeviceCells,
    deals: Mapping[int, DeviceDeal],
    held: Mapping[int, Devices],
    idle: set[int],
) -> dict[int, Devices]:
    """Return job → devices, all of them ``idle``: in each cell first those it holds already."""
    chosen: dict[int, list[int]] = {row: [] for row in deals}
    wanting: list[list[tuple[int, int]]] = [[] for _ in cells.devices]
    for row, deal in deals.items():
        for cell, count in deal.take:
            wanting[cell].append((row, count))
    for cell, wants in enumerate(wanting):
        if not wants:
            continue
        free = idle.intersection(cells.devices[cell])
        missing: list[tuple[int, int]] = []
        for row, count in wants:
            own = [device for device in held.get(row, ()) if device in free][:count]
            if own:
                free.difference_update(own)
                chosen[row] += own
            if len(own) < count:
                missing.append((row, count - len(own)))
        rest = iter([device for device in cells.devices[cell] if device in free])
        for row, count in missing:
            chosen[row] += islice(rest, count)
    return {
        row: tuple(sorted(devices)) if len(devices) > 1 else tuple(devices)
        for row, devices in chosen.items()
    }


def choose_single_devices(
    cells: DeviceCells,
    sold: Mapping[int, int],
    held: Mapping[int, Devices],
    idle: set[int],
) -> dict[int, Devices]:
    """Return the same for jobs of one device each, given job → cell."""
    chosen: dict[int, Devices] = dict.fromkeys(sold, ())
    free: list[set[int] | None] = [None] * len(cells.devices)
    missing: list[list[int]] = [[] for _ in cells.devices]
    for row, cell in sold.items():
        here = free[cell]
        if here is None:
            here = free[cell] = idle.intersection(cells.devices[cell])
        for device in held.get(row, ()):
            if device in here:
                here.remove(device)
                chosen[row] = (device,)
                break
        else:
            missing[cell].append(row)
    for cell, rows in enumerate(missing):
        if rows:
            here = free[cell] or set()
            rest = [device for device in cells.devices[cell] if device in here]
            for row, device in zip(rows, rest, strict=False):
                chosen[row] = (device,)
    return chosen


def with_nodes_exchanged(
    cells: DeviceCells, deals: Mapping[int, DeviceDeal], held: Mapping[int, Devices]
) -> dict[int, DeviceDeal]:
    """Return the same deals with equal nodes exchanged so that jobs stay where they are.

    Nodes with the same devices are worth the same to every job, so their names may be exchanged;
    the exchanges that leave most devices with their jobs come first.
    """
    shape = cells.shapes
    if cells.nodes_differ:
        return dict(deals)
    keys = list(zip(cells.node, cells.accelerator, strict=True))
    cell_at = {key: cell for cell, key in enumerate(keys)}
    place_of = {d: key for key, here in zip(keys, cells.devices, strict=True) for d in here}
    stays: dict[tuple[int, int], int] = {}
    for row, deal in deals.items():
        held_at: dict[tuple[int, int], int] = {}
        for device in held.get(row, ()):
            where = place_of[device]
            held_at[where] = held_at.get(where, 0) + 1
        for cell, count in deal.take:
            planned, accelerator = cells.node[cell], cells.accelerator[cell]
            for (node, other), devices in held_at.items():
                if other == accelerator and shape[node] == shape[planned]:
                    pair = planned, node
                    stays[pair] = stays.get(pair, 0) + min(count, devices)
    name = _matched(stays, shape)
    return {
        row: deal._replace(
            take=tuple(
                (cell_at[name[cells.node[c]], cells.accelerator[c]], n) for c, n in deal.take
            )
        )
        for row, deal in deals.items()
    }


def _matched(stays: Mapping[tuple[int, int], int], shape: Mapping[int, object]) -> dict[int, int]:
    """Return planned node → node, one to one within each shape, most that stay first."""
    name: dict[int, int] = {}
    used: set[int] = set()
    pairs = sorted(stays, key=lambda pair: (-stays[pair], pair[0] != pair[1], pair))
    for planned, node in pairs:
        if planned not in name and node not in used:
            name[planned] = node
            used.add(node)
    open_nodes: dict[object, list[int]] = {}
    for node in sorted(shape, reverse=True):
        if node not in used:
            open_nodes.setdefault(shape[node], []).append(node)
    for planned in sorted(shape):
        if planned not in name:
            name[planned] = open_nodes[shape[planned]].pop()
    return name
