"""``fairlead allocate`` and ``fairlead policies``."""

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from fairlead.cli.shared.options import Json, PolicyOption


def allocate(
    instance: Annotated[Path, typer.Option(help="The jobs and devices, as JSON.")],
    policy: PolicyOption = "max-min",
    as_json: Json = False,
) -> None:
    """Compute the shares that a policy gives the jobs of one instance, with a certificate.

    Example:  fairlead allocate --instance instance.json --policy max-min
    """
    from fairlead.cli.shared.instances import snapshot_for
    from fairlead.cli.shared.json_output import print_json
    from fairlead.policies.rules.priority import policy_named

    chosen = policy_named(policy)
    snap = snapshot_for(chosen, instance)
    started = time.perf_counter()
    allocation = chosen.allocate(snap)
    solve_s = time.perf_counter() - started
    found = _as_dict(policy, snap, allocation, solve_s)
    if as_json:
        print_json(found)
        return
    _show(policy, snap, allocation, found)


def _show(policy: str, snap: Any, allocation: Any, found: dict[str, Any]) -> None:
    """Print the shares, and apart from them the speeds where rows are not jobs."""
    from fairlead.cli.shared.output import results, table

    kinds, speeds = _columns(snap, allocation), found["speeds"]
    own = set(found["allocation"]) == set(speeds)
    rows = [
        [row, *(f"{shares.get(kind, 0):.4f}" for kind in kinds)]
        + ([f"{speeds[row]:.4g}"] if own else [])
        for row, shares in found["allocation"].items()
    ]
    what = {"jobs": "job" if own else "unit", "tenants": "tenant"}[allocation.rows]
    unit = "steps/s" if allocation.rows == "jobs" else "normalised speed"
    title = policy if found["objective"] is None else f"{policy}: objective {found['objective']}"
    table(title, [what, *kinds, *([unit] if own else [])], rows)
    if not own:
        table("speeds", ["job", unit], [[job, f"{speed:.4g}"] for job, speed in speeds.items()])
    for late in allocation.late:
        results.print(
            f"{late.job} will be late: it needs {late.needed:.4g} steps/s, gets {late.given:.4g}"
        )
    for trade in allocation.trades:
        results.print(
            f"{trade.seller} gave {trade.buyer} {trade.fast_devices:.4g} {trade.fast} for"
            f" {trade.slow_devices:.4g} {trade.slow} (price {trade.price:.4g}): {trade.why}"
        )
    if found["certificate"]:
        proof = found["certificate"]
        results.print(f"bound {proof['bound']:.9g}, gap {proof['gap']:.1e}")


def _columns(snap: Any, allocation: Any) -> list[str]:
    """Return the columns' names: an accelerator, or one of its placements (v100/spread)."""
    kinds = snap.cluster.accelerators
    return [
        kinds[c.accelerator] + (f"/{c.placement}" if c.placement else "")
        for c in allocation.columns
    ]


def _as_dict(policy: str, snap: Any, allocation: Any, solve_s: float) -> dict[str, Any]:
    from dataclasses import asdict

    from fairlead.policies.base import effective_speed

    kinds = snap.cluster.accelerators
    columns = _columns(snap, allocation)
    if allocation.rows == "tenants":
        labels = [tenant.id for tenant in snap.tenants]
        owners = [labels[member] for member in allocation.members[:, 0].tolist()]
    else:
        labels = snap.ids
        owners = [labels[number] for number in snap.job.tolist()]
    names = _row_names(labels, allocation.members.tolist())
    proof = allocation.prove() if allocation.prove else None
    found: dict[str, Any] = {
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
            "prices": dict(zip(kinds, proof.prices.tolist(), strict=True)),
            "bound": proof.bound,
            "gap": proof.gap,
        },
    }
    for key in ("late", "trades"):
        if getattr(allocation, key):
            found[key] = [asdict(entry) for entry in getattr(allocation, key)]
    return found


def _row_names(labels: list[str], rows: list[list[int]]) -> list[str]:
    """Return rows → name, the members' joined by +; refuse two of one name."""
    from fairlead.model.errors import InputError

    found: dict[str, list[str]] = {}
    for members in rows:
        ids = [labels[member] for member in members if member >= 0]
        name = "+".join(ids)
        if name in found:
            both = " and ".join(
                f"the job {one[0]!r}"
                if len(one) == 1
                else f"the pair of {one[0]!r} and {one[1]!r}"
                for one in (found[name], ids)
            )
            raise InputError(
                f"{both} would both be called {name!r}",
                fix="give the jobs ids without +",
                field="jobs",
            )
        found[name] = ids
    return list(found)


def policies(
    as_json: Json = False,
) -> None:
    """List the policies and mechanisms there are, with their options.

    Example:  fairlead policies
    """
    import dataclasses

    from fairlead.cli.shared.json_output import print_json
    from fairlead.cli.shared.output import table
    from fairlead.registry import available

    found: list[dict[str, Any]] = []
    for group in ("policies", "mechanisms"):
        for name, point in available(group).items():
            kind = point.load()
            options = [
                field.name.replace("_", "-")
                for field in dataclasses.fields(kind)
                if field.init and field.name not in ("policy", "round_s", "fluid")
            ]
            promise = (kind.__doc__ or "").strip().splitlines()[0]
            found.append({"name": name, "kind": group, "options": options, "about": promise})
    if as_json:
        print_json(found)
        return
    for group in ("policies", "mechanisms"):
        rows = [
            [row["name"], row["about"], ", ".join(row["options"])]
            for row in found
            if row["kind"] == group
        ]
        table(group, ["name", "what it does", "options"], rows, figures=False)
