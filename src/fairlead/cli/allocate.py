"""``fairlead allocate`` and ``fairlead policies``."""

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from fairlead.cli.options import Json, PolicyOption


def allocate(
    instance: Annotated[Path, typer.Option(help="The jobs and devices, as JSON.")],
    policy: PolicyOption = "max-min",
    as_json: Json = False,
) -> None:
    """Compute the shares that a policy gives the jobs of one instance, with a certificate.

    Example:  fairlead allocate --instance instance.json --policy max-min
    """
    from fairlead.cli.output import print_json, results, table
    from fairlead.files import read_instance
    from fairlead.model.snapshot import snapshot_of
    from fairlead.registry import create

    chosen = create("policies", policy)
    snap = snapshot_of(read_instance(instance))
    started = time.perf_counter()
    allocation = chosen.allocate(snap)
    solve_s = time.perf_counter() - started
    found = _as_dict(policy, snap, allocation, solve_s)
    if as_json:
        print_json(found)
        return
    kinds = snap.cluster.accelerators
    rows = [
        [row, *(f"{shares.get(kind, 0):.4f}" for kind in kinds), f"{found['speeds'][row]:.4g}"]
        for row, shares in found["allocation"].items()
    ]
    table(f"{policy}: objective {found['objective']}", ["job", *kinds, "steps/s"], rows)
    if found["certificate"]:
        proof = found["certificate"]
        results.print(f"bound {proof['bound']:.9g}, gap {proof['gap']:.1e}")


def _as_dict(policy: str, snap: Any, allocation: Any, solve_s: float) -> dict[str, Any]:
    from fairlead.policies.base import effective_speed

    kinds = snap.cluster.accelerators
    names = [
        "+".join(snap.ids[member] for member in members if member >= 0)
        for members in allocation.members.tolist()
    ]
    proof = allocation.prove() if allocation.prove else None
    return {
        "policy": policy,
        "objective": allocation.objective,
        "allocation": {
            name: {
                kinds[column.accelerator]: share
                for column, share in zip(allocation.columns, shares, strict=True)
                if share
            }
            for name, shares in zip(names, allocation.share.tolist(), strict=True)
        },
        "speeds": dict(zip(names, effective_speed(snap, allocation).tolist(), strict=True)),
        "solve_s": solve_s,
        "certificate": proof
        and {
            "prices": dict(zip(kinds, proof.prices.tolist(), strict=True)),
            "bound": proof.bound,
            "gap": proof.gap,
        },
    }


def policies(
    as_json: Json = False,
) -> None:
    """List the policies and mechanisms there are, with their options."""
    import dataclasses

    from fairlead.cli.output import print_json, table
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
