"""``fairlead allocate``."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairlead.cli.shared.options import Json, PolicyOption, SkipOption

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairlead.model.submission.skipped_job import SkippedJob


def allocate(
    instance: Annotated[
        Path, typer.Option(help="Instance file: cluster, jobs and speeds, as JSON.")
    ],
    policy: PolicyOption = "max-min",
    skip_impossible: SkipOption = False,
    as_json: Json = False,
) -> None:
    """Compute the shares that a policy gives the jobs of one instance, with a proof of optimality.

    Example:  fairlead allocate --instance instance.json --policy max-min
    """
    from fairlead.cli.shared.instances import snapshot_for, snapshot_of_possible_jobs
    from fairlead.cli.shared.json_output import print_json
    from fairlead.cli.shared.skipped_jobs import print_skipped, suggest_skipping
    from fairlead.policies.rules.priority import create_policy

    chosen = create_policy(policy)
    skipped: Sequence[SkippedJob] = ()
    if skip_impossible:
        snap, skipped = snapshot_of_possible_jobs(chosen, instance)
    else:
        with suggest_skipping():
            snap = snapshot_for(chosen, instance)
    started = time.perf_counter()
    allocation = chosen.allocate(snap)
    solve_s = time.perf_counter() - started
    document = _as_dict(policy, snap, allocation, solve_s)
    if skip_impossible:
        document["skipped"] = [{"id": job.id, "reason": job.reason} for job in skipped]
    if as_json:
        print_json(document)
        return
    _show(policy, snap, allocation, document)
    print_skipped(skipped)


def _show(policy: str, snap: Any, allocation: Any, document: dict[str, Any]) -> None:
    """Print the shares; if rows are not jobs, print the speeds in a table below."""
    from fairlead.cli.shared.output import results, table
    from fairlead.model.speeds.text import speed_text

    columns, speeds = _columns(snap, allocation), document["speeds"]
    own = set(document["allocation"]) == set(speeds)
    rows = [
        [row, *(f"{shares.get(column, 0):.4f}" for column in columns)]
        + ([f"{speeds[row]:.4g}"] if own else [])
        for row, shares in document["allocation"].items()
    ]
    row_name = {"jobs": "job" if own else "unit", "tenants": "tenant"}[allocation.rows]
    unit = "steps/s" if allocation.rows == "jobs" else "normalised speed"
    objective = document["objective"]
    title = policy if objective is None else f"{policy}: objective {objective}"
    table(title, [row_name, *columns, *([unit] if own else [])], rows)
    if not own:
        table("speeds", ["job", unit], [[job, f"{speed:.4g}"] for job, speed in speeds.items()])
    for late in allocation.late:
        results.print(
            f"{late.job} will be late: needs {speed_text(late.needed)}, gets {late.given:.4g}"
        )
    for trade in allocation.trades:
        results.print(
            f"{trade.seller} gave {trade.buyer} {trade.fast_devices:.4g} {trade.fast} for"
            f" {trade.slow_devices:.4g} {trade.slow} (price {trade.price:.4g}): {trade.why}"
        )
    if document["certificate"]:
        proof = document["certificate"]
        results.print(f"bound {proof['bound']:.9g}, gap {proof['gap']:.1e}")


def _columns(snap: Any, allocation: Any) -> list[str]:
    """Return the columns' names: an accelerator, or one of its placements (v100/spread)."""
    accelerators = snap.cluster.accelerators
    return [
        accelerators[c.accelerator] + (f"/{c.placement}" if c.placement else "")
        for c in allocation.columns
    ]


def _as_dict(policy: str, snap: Any, allocation: Any, solve_s: float) -> dict[str, Any]:
    from dataclasses import asdict

    from fairlead.policies.base import effective_speed

    columns = _columns(snap, allocation)
    if allocation.rows == "tenants":
        labels = [tenant.id for tenant in snap.tenants]
        owners = [labels[member] for member in allocation.members[:, 0].tolist()]
    else:
        labels = snap.ids
        owners = [labels[number] for number in snap.job.tolist()]
    names = _row_names(labels, allocation.members.tolist())
    proof = allocation.prove() if allocation.prove else None
    document: dict[str, Any] = {
        "policy": policy,
        "objective": allocation.objective,
        "allocation": {
            name: {column: share for column, share in zip(columns, shares, strict=True) if share}
            for name, shares in zip(names, allocation.share.tolist(), strict=True)
        },
        "speeds": dict(zip(owners, effective_speed(snap, allocation).tolist(), strict=True)),
        "solve_s": solve_s,
        "certificate": proof
        and {
            "prices": dict(zip(snap.cluster.accelerators, proof.prices.tolist(), strict=True)),
            "bound": proof.bound,
            "gap": proof.gap,
        },
    }
    for key in ("late", "trades"):
        if getattr(allocation, key):
            document[key] = [asdict(entry) for entry in getattr(allocation, key)]
    return document


def _row_names(labels: list[str], rows: list[list[int]]) -> list[str]:
    """Return rows → name, the members' ids joined by +; raise InputError for equal names."""
    from fairlead.model.errors import InputError

    members_of: dict[str, list[str]] = {}
    for members in rows:
        ids = [labels[member] for member in members if member >= 0]
        name = "+".join(ids)
        if name in members_of:
            both = " and ".join(
                f"job {unit[0]!r}" if len(unit) == 1 else f"the pair {unit[0]!r} and {unit[1]!r}"
                for unit in (members_of[name], ids)
            )
            raise InputError(
                f"{both} have the same name {name!r}", fix="expected ids without +", field="jobs"
            )
        members_of[name] = ids
    return list(members_of)
