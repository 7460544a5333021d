"""``fairlead export``."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairlead.cli.shared.options import Json, PolicyOption, TenantsOption
from fairlead.data import DEFAULT_SPEEDS

if TYPE_CHECKING:
    from fairlead.engines.slurm.queue import Queue
    from fairlead.insight.advice import Advice


class Form(StrEnum):
    """How advice is written."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    SLURM = "slurm"


def export(
    *,
    slurm: Annotated[
        bool, typer.Option("--slurm", help="Advise on the jobs in this cluster's Slurm.")
    ] = False,
    slurm_jobs: Annotated[
        Path | None,
        typer.Option(help="What `scontrol show job --details --oneliner` printed elsewhere."),
    ] = None,
    slurm_nodes: Annotated[
        Path | None,
        typer.Option(help="What `scontrol show node --details --oneliner` printed elsewhere."),
    ] = None,
    partition: Annotated[
        str, typer.Option(help="With Slurm: the nodes and jobs of this partition only.")
    ] = "",
    instance: Annotated[
        Path | None, typer.Option(help="Advise on the jobs of this instance, as JSON.")
    ] = None,
    live: Annotated[
        bool, typer.Option("--live", help="Show what the running server has decided.")
    ] = False,
    policy: PolicyOption = "max-min",
    speeds: Annotated[
        str, typer.Option(help="With Slurm: steps per second, as for `simulate`.")
    ] = DEFAULT_SPEEDS,
    tenants: TenantsOption = None,
    form: Annotated[Form, typer.Option("--format", help="How it is written.")] = Form.TABLE,
    as_json: Json = False,
) -> None:
    """Say which waiting job should start next, and on which nodes; nothing is started.

    For sites that keep starting jobs themselves. Tenants are ranked by the part of what the
    policy entitles them to that they hold; jobs that fit now are given nodes. With `--format
    slurm` the advice is commands that an operator can look at and run.

    Example:  fairlead export --slurm --partition gpu --format slurm | sh
    """
    from fairlead.cli.export import formats as export_forms
    from fairlead.model.errors import UsageError

    given = sum([slurm, slurm_jobs is not None, instance is not None, live])
    if given != 1:
        raise UsageError("give one of --slurm, --slurm-jobs, --instance and --live")
    queue = None
    if live:
        advised = _of_server()
    elif instance is not None:
        advised = _of_instance(instance, policy)
    else:
        from fairlead.cli.export.slurm import advise_slurm, ask_slurm, read_files

        texts = ask_slurm() if slurm else read_files(slurm_jobs, slurm_nodes)
        advised, queue = advise_slurm(*texts, partition, policy, speeds, tenants)
    form = Form.JSON if as_json else form
    if form == Form.SLURM and queue is None:
        raise UsageError("--format slurm needs Slurm's own jobs: give --slurm or --slurm-jobs")
    if form == Form.TABLE:
        export_forms.show(advised)
    else:
        typer.echo(_written(form, advised, queue), nl=False)


def _written(form: Form, advised: "list[Advice]", queue: "Queue | None") -> str:
    from fairlead.cli.export import formats as export_forms

    if form == Form.SLURM:
        assert queue is not None
        return export_forms.as_slurm(advised, queue)
    return export_forms.as_csv(advised) if form == Form.CSV else export_forms.as_json(advised)


def _of_instance(path: Path, policy: str) -> "list[Advice]":
    from fairlead.cli.shared.instances import snapshot_for
    from fairlead.insight.advice import advise
    from fairlead.policies.rules.priority import policy_named

    chosen = policy_named(policy)
    return advise(snapshot_for(chosen, path), chosen)


def _of_server() -> "list[Advice]":
    from fairlead.client import Client
    from fairlead.insight.advice import Advice

    found: list[dict[str, Any]] = Client.found().get("/v1/advice")
    return [
        Advice(**{**one, "nodes": tuple((node, int(count)) for node, count in one["nodes"])})
        for one in found
    ]
