"""``fairlead explain``."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairlead.cli.shared.options import Json
from fairlead.model.errors import UsageError

if TYPE_CHECKING:
    from fairlead.client import Client

_MISSING = "missing"
"""code of the server's error for an unknown job or tenant"""


def explain(
    subject: Annotated[str, typer.Argument(metavar="JOB|TENANT", help="Id of the job or tenant.")],
    instance: Annotated[
        Path | None,
        typer.Option(help="Instance file (JSON).", show_default="the server's current jobs"),
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option(
            help="Policy: see `fairlead policies`.",
            show_default="max-min, or the server's",
        ),
    ] = None,
    tenant: Annotated[
        bool, typer.Option("--tenant", help="The id is a tenant's, even if a job has it too.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Explain the speed of a job or tenant, and show the changes that would raise it.

    Device prices show the bottleneck and the cost of the speed. For every change (another
    accelerator, a smaller gang, more weight, one more device) the allocation is solved again,
    so gains are exact as long as nothing else changes. Without --instance the server explains
    one of its jobs, `fairlead explain j7`, or the devices that one of its tenants holds,
    `fairlead explain vision`.

    Example:  fairlead explain j7

    Example:  fairlead explain job-7 --instance instance.json --policy max-min
    """
    from fairlead.cli.shared.instances import snapshot_for
    from fairlead.cli.shared.json_output import print_json
    from fairlead.cli.shared.output import results
    from fairlead.insight.explain.explain import explain as find
    from fairlead.insight.explain.text import paragraphs
    from fairlead.policies.rules.priority import create_policy

    if instance is None:
        _explain_live(subject, policy, tenant=tenant, as_json=as_json)
        return
    policy = policy or "max-min"
    chosen = create_policy(policy)
    snap = snapshot_for(chosen, instance)
    explanation = find(snap, chosen, subject, name=policy, tenant=tenant)
    if as_json:
        print_json(explanation.as_dict())
        return
    for paragraph in paragraphs(explanation):
        results.print(paragraph, highlight=False, markup=False)


def _explain_live(subject: str, policy: str | None, *, tenant: bool, as_json: bool) -> None:
    from fairlead.cli.shared.json_output import print_json
    from fairlead.cli.shared.output import results
    from fairlead.client import Client

    if policy is not None:
        raise UsageError(
            "--policy: needs --instance: the server explains jobs under its own policy"
        )
    answer = _live_explanation(Client.from_environment(), subject, tenant=tenant)
    if as_json:
        print_json(answer)
        return
    for paragraph in answer["text"]:
        results.print(paragraph, highlight=False, markup=False)


def _live_explanation(server: "Client", subject: str, *, tenant: bool) -> Any:
    """Return the server's explanation of a job, or of a tenant if no job has this id."""
    from fairlead.client import ServerError
    from fairlead.server_address import job_path, tenant_path

    if tenant:
        return server.get(tenant_path(subject, "explain"))
    try:
        return server.get(job_path(subject, "explain"))
    except ServerError as error:
        if error.code != _MISSING:
            raise
    try:
        return server.get(tenant_path(subject, "explain"))
    except ServerError as error:
        raise ServerError(f"no job or tenant {subject!r}", error.code) from None
