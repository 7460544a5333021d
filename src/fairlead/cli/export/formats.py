"""Advice as a table, JSON, CSV and commands of Slurm's."""

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fairlead.engines.slurm.queue import Queue
    from fairlead.insight.advice import Advice

_TOP = 1_000_000
"""Slurm's priority of the first job; below it one less for each"""
_COLUMNS = ("rank", "job", "tenant", "action", "accelerator", "devices", "nodes", "share")


def show(advised: "Sequence[Advice]") -> None:
    """Print a table."""
    from fairlead.cli.shared.output import table

    rows = [
        [
            str(one.rank or ""),
            one.job,
            one.tenant,
            one.action,
            f"{one.devices} {one.accelerator}".strip(),
            _nodes(one),
            f"{one.share:.0%}" if one.share else "",
        ]
        for one in advised
    ]
    waiting = sum(one.rank > 0 for one in advised)
    heads = ["", "job", "tenant", "", "devices", "nodes", "share"]
    table(f"{waiting} jobs wait", heads, rows, figures=False)


def as_json(advised: "Sequence[Advice]") -> str:
    """Return one JSON document."""
    return json.dumps([asdict(one) for one in advised], separators=(",", ":")) + "\n"


def as_csv(advised: "Sequence[Advice]") -> str:
    """Return CSV, the nodes as ``n1:2 n2:2``."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for one in advised:
        plain = {**asdict(one), "nodes": _nodes(one), "share": f"{one.share:.6f}"}
        writer.writerow([plain[name] for name in _COLUMNS])
    return out.getvalue()


def as_slurm(advised: "Sequence[Advice]", queue: "Queue") -> str:
    """Return commands for an operator: priorities in order of rank, nodes for who starts now.

    Slurm sets no priority of a held job: one that has a place is released, the others stay held.
    """
    held = {one.job.id for one in queue.jobs if one.held}
    lines = []
    for one in advised:
        if one.action == "runs":
            continue
        where = f"on {_nodes(one)}" if one.nodes else f"waits, best on {one.accelerator}"
        lines.append(
            f"# {one.rank}. job {one.job} of {_plain(one.tenant)}: {one.devices} devices, {where}"
        )
        change = f"scontrol update JobId={one.job}"
        if one.nodes:
            change += f" ReqNodeList={','.join(node for node, _ in one.nodes)}"
        if one.job not in held:
            lines.append(f"{change} Priority={_TOP - one.rank}")
        elif one.nodes:
            lines += [change, f"scontrol release {one.job}"]
    return "".join(f"{line}\n" for line in lines)


def _nodes(one: "Advice") -> str:
    return " ".join(f"{node}:{count}" for node, count in one.nodes)


def _plain(text: str) -> str:
    """Return a name on one line, so that it stays inside its comment."""
    return " ".join(text.split())
