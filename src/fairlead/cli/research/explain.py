"""``fairlead explain``."""

from pathlib import Path
from typing import Annotated

import typer

from fairlead.cli.shared.options import Json
from fairlead.model.errors import UsageError


def explain(
    who: Annotated[str, typer.Argument(metavar="JOB|TENANT", help="Whom it is about.")],
    instance: Annotated[
        Path | None,
        typer.Option(
            help="The jobs and devices, as JSON.", show_default="the server's, as they are now"
        ),
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option(
            help="Who should get what: see `fairlead policies`.",
            show_default="max-min, or what the server runs",
        ),
    ] = None,
    tenant: Annotated[
        bool, typer.Option("--tenant", help="It is a tenant, though a job has this id too.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Say why a job or tenant has the speed it has, and what would raise it most cheaply.

    From the prices of the devices: what binds it, and what its speed costs. For every change
    (another accelerator, a smaller gang, more weight, one more device) the allocation is solved
    again, so gains are exact as long as nothing else changes. Without --instance the server is
    asked about one of its jobs: `fairlead explain j7`.

    Example:  fairlead explain job-7 --instance instance.json --policy max-min
    """
    from fairlead.cli.shared.instances import snapshot_for
    from fairlead.cli.shared.json_output import print_json
    from fairlead.cli.shared.output import results
    from fairlead.insight.explain.explain import explain as find
    from fairlead.insight.explain.text import paragraphs
    from fairlead.policies.rules.priority import policy_named

    if instance is None:
        _explain_live(who, policy, tenant=tenant, as_json=as_json)
        return
    policy = policy or "max-min"
    chosen = policy_named(policy)
    snap = snapshot_for(chosen, instance)
    found = find(snap, chosen, who, name=policy, tenant=tenant)
    if as_json:
        print_json(found.as_dict())
        return
    for paragraph in paragraphs(found):
        results.print(paragraph, highlight=False, markup=False)


def _explain_live(job_id: str, policy: str | None, *, tenant: bool, as_json: bool) -> None:
    from fairlead.cli.shared.json_output import print_json
    from fairlead.cli.shared.output import results
    from fairlead.client import Client, job_path

    if policy is not None or tenant:
        raise UsageError(
            "--policy and --tenant go with --instance: the server runs its own policy"
        )
    found = Client.found().get(job_path(job_id, "explain"))
    if as_json:
        print_json(found)
        return
    for paragraph in found["text"]:
        results.print(paragraph, highlight=False, markup=False)
