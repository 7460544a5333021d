"""``fairlead export``."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairlead.cli.shared.options import Json, TenantsOption
from fairlead.data import DEFAULT_SPEEDS

if TYPE_CHECKING:
    from fairlead.engines.slurm.queue import SlurmQueue
    from fairlead.insight.advice import Advice


_DEFAULT_POLICY = "max-min"


class ExportFormat(StrEnum):
    """Format of the advice."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    SLURM = "slurm"


def export(
    *,
    slurm: Annotated[
        bool, typer.Option("--slurm", help="Advise on the jobs in the local Slurm's queue.")
    ] = False,
    slurm_jobs: Annotated[
        Path | None,
        typer.Option(help="Saved output of `scontrol show job --details --oneliner`."),
    ] = None,
    slurm_nodes: Annotated[
        Path | None,
        typer.Option(help="Saved output of `scontrol show node --details --oneliner`."),
    ] = None,
    partition: Annotated[
        str, typer.Option(help="With Slurm: only nodes and jobs of this partition.")
    ] = "",
    instance: Annotated[
        Path | None, typer.Option(help="Advise on the jobs of this instance file (JSON).")
    ] = None,
    live: Annotated[
        bool, typer.Option("--live", help="Advise on the running server's jobs.")
    ] = False,
    policy: Annotated[
        str | None,
        typer.Option(
            help="Scheduling policy: see `fairlead policies`.", show_default=_DEFAULT_POLICY
        ),
    ] = None,
    speeds: Annotated[
        str | None,
        typer.Option(
            help="With Slurm: steps per second, as for `simulate`.", show_default=DEFAULT_SPEEDS
        ),
    ] = None,
    tenants: TenantsOption = None,
    form: Annotated[
        ExportFormat, typer.Option("--format", help="Output format.")
    ] = ExportFormat.TABLE,
    as_json: Json = False,
) -> None:
    """Advise which waiting job to start next, and on which nodes; nothing is started.

    For sites that start jobs themselves. Tenants are ranked by the fraction of their entitlement
    that they hold; jobs that fit now get nodes. `--format slurm` writes commands that an operator
    can review and run.

    Example:  fairlead export --slurm --partition gpu --format slurm > advice.sh
    """
    from fairlead.cli.export import formats
    from fairlead.model.errors import UsageError

    sources = sum([slurm, slurm_jobs is not None, instance is not None, live])
    if sources != 1:
        problem = "several sources of jobs" if sources else "no jobs"
        raise UsageError(
            f"{problem}: expected one of --slurm, --slurm-jobs, --instance and --live"
        )
    only_slurm = {"--slurm-nodes": slurm_nodes, "--partition": partition or None,
                  "--speeds": speeds, "--tenants-file": tenants}  # fmt: skip
    refused = [option for option, value in only_slurm.items() if value is not None]
    if refused and (live or instance is not None):
        raise UsageError(f"{refused[0]}: needs --slurm or --slurm-jobs")
    if live and policy is not None:
        raise UsageError("--policy: excluded by --live: the server's policy decides")
    policy = _DEFAULT_POLICY if policy is None else policy
    queue = None
    if live:
        advised = _advice_of_server()
    elif instance is not None:
        advised = _advice_of_instance(instance, policy)
    else:
        from fairlead.cli.export.slurm import advise_slurm, query_slurm, read_files

        texts = query_slurm() if slurm else read_files(slurm_jobs, slurm_nodes)
        table = DEFAULT_SPEEDS if speeds is None else speeds
        advised, queue = advise_slurm(*texts, partition, policy, table, tenants)
    form = ExportFormat.JSON if as_json else form
    if form == ExportFormat.SLURM and queue is None:
        raise UsageError("--format slurm: needs --slurm or --slurm-jobs")
    if form == ExportFormat.TABLE:
        formats.show(advised)
    else:
        typer.echo(_format_advice(form, advised, queue), nl=False)


def _format_advice(form: ExportFormat, advised: "list[Advice]", queue: "SlurmQueue | None") -> str:
    from fairlead.cli.export import formats

    if form == ExportFormat.SLURM:
        assert queue is not None
        return formats.as_slurm(advised, queue)
    if form == ExportFormat.CSV:
        return formats.as_csv(advised)
    return formats.as_json(advised)


def _advice_of_instance(path: Path, policy: str) -> "list[Advice]":
    from fairlead.cli.shared.instances import snapshot_for
    from fairlead.insight.advice import advise
    from fairlead.policies.rules.priority import create_policy

    chosen = create_policy(policy)
    return advise(snapshot_for(chosen, path), chosen)


def _advice_of_server() -> "list[Advice]":
    from fairlead.client import Client
    from fairlead.insight.advice import Advice

    rows: list[dict[str, Any]] = Client.from_environment().get("/v1/advice")
    return [
        Advice(**{**row, "nodes": tuple((node, int(count)) for node, count in row["nodes"])})
        for row in rows
    ]
