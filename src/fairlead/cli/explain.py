"""``fairlead explain``."""

from pathlib import Path
from typing import Annotated

import typer

from fairlead.cli.options import Json, PolicyOption


def explain(
    who: Annotated[str, typer.Argument(metavar="JOB|TENANT", help="Whom it is about.")],
    instance: Annotated[Path, typer.Option(help="The jobs and devices, as JSON.")],
    policy: PolicyOption = "max-min",
    tenant: Annotated[
        bool, typer.Option("--tenant", help="It is a tenant, though a job has this id too.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Say why a job or tenant has the speed it has, and what would raise it most cheaply.

    From the prices of the devices: what binds it, and what its speed costs. For every change
    (another accelerator, a smaller gang, more weight, one more device) the allocation is solved
    again, so gains are exact as long as nothing else changes.

    Example:  fairlead explain job-7 --instance instance.json --policy max-min
    """
    from fairlead.cli.output import print_json, results
    from fairlead.files import read_instance
    from fairlead.insight.explain import explain as find
    from fairlead.insight.sentences import paragraphs
    from fairlead.model.snapshot import snapshot_of
    from fairlead.policies.ranks import policy_named

    snap = snapshot_of(read_instance(instance))
    chosen = policy_named(policy)
    found = find(snap, chosen, who, name=policy, tenant=tenant)
    if as_json:
        print_json(found.as_dict())
        return
    for paragraph in paragraphs(found):
        results.print(paragraph, highlight=False, markup=False)
