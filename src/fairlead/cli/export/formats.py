"""Advice as a table, JSON, CSV and Slurm commands."""

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fairlead.engines.slurm.queue import SlurmQueue
    from fairlead.insight.advice import Advice

_TOP_PRIORITY = 1_000_000
"""Slurm priority of rank 0; each rank has one less"""
_COLUMNS = ("rank", "job", "tenant", "action", "accelerator", "devices", "nodes", "share")


def show(advised: "Sequence[Advice]") -> None:
    """Print a table."""
    from fairlead.cli.shared.output import table

    rows = [
        [
            str(advice.rank or ""),
            advice.job,
            advice.tenant,
            advice.action,
            f"{advice.devices} {advice.accelerator}".strip(),
            _nodes(advice),
            f"{advice.share:.0%}" if advice.share else "",
        ]
        for advice in advised
    ]
    waiting = sum(advice.rank > 0 for advice in advised)
    heads = ["", "job", "tenant", "", "devices", "nodes", "share"]
    table(f"{waiting} waiting jobs", heads, rows, figures=False)


def as_json(advised: "Sequence[Advice]") -> str:
    """Return one JSON document."""
    return json.dumps([asdict(advice) for advice in advised], separators=(",", ":")) + "\n"


def as_csv(advised: "Sequence[Advice]") -> str:
    """Return CSV, the nodes as ``n1:2 n2:2``."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for advice in advised:
        plain = {**asdict(advice), "nodes": _nodes(advice), "share": f"{advice.share:.6f}"}
        writer.writerow([plain[name] for name in _COLUMNS])
    return out.getvalue()


def as_slurm(advised: "Sequence[Advice]", queue: "SlurmQueue") -> str:
    """Return commands for an operator: priorities by rank, and nodes for jobs that can start now.

    Slurm cannot set the priority of a held job: one with nodes is released, others stay held.
    """
    from fairlead.cli.shared.output import pluralise

    held = {entry.job.id for entry in queue.jobs if entry.held}
    lines = []
    for advice in advised:
        if advice.action == "runs":
            continue
        where = f"on {_nodes(advice)}" if advice.nodes else f"waits, best on {advice.accelerator}"
        lines.append(
            f"# {advice.rank}. job {advice.job} of {_plain(advice.tenant)}:"
            f" {pluralise(advice.devices, 'device')}, {where}"
        )
        change = f"scontrol update JobId={advice.job}"
        if advice.nodes:
            change += f" ReqNodeList={','.join(node for node, _ in advice.nodes)}"
        if advice.job not in held:
            lines.append(f"{change} Priority={_TOP_PRIORITY - advice.rank}")
        elif advice.nodes:
            lines += [change, f"scontrol release {advice.job}"]
    return "".join(f"{line}\n" for line in lines)


def _nodes(advice: "Advice") -> str:
    return " ".join(f"{node}:{count}" for node, count in advice.nodes)


def _plain(text: str) -> str:
    """Return a name on one line, so that it stays inside its comment."""
    return " ".join(text.split())
