"""``fairlead policy``: the scheduling policy of the running server."""

from typing import Annotated, Any

import typer

from fairlead.cli.operate.live_change import origin_of
from fairlead.cli.shared.options import Json, MechanismOption
from fairlead.model.submission.bounds import ROUND_RANGE

app = typer.Typer(
    help="Show and change the policy of the running server.\n\nExample:  fairlead policy show",
    no_args_is_help=True,
)


@app.command("show")
def show(as_json: Json = False) -> None:
    """Show policy, mechanism, round and speeds in force, and the author of the last live change.

    Example:  fairlead policy show
    """
    from fairlead.client import Client

    _print(Client.from_environment().get("/v1/policy"), as_json)


@app.command("set")
def set_policy(
    policy: Annotated[
        str | None, typer.Argument(help="Scheduling policy: see `fairlead policies`.")
    ] = None,
    *,
    mechanism: MechanismOption = None,
    round_s: Annotated[
        float | None,
        typer.Option(
            "--round",
            help="Length of a round in seconds.",
            min=ROUND_RANGE.least,
            max=ROUND_RANGE.most,
        ),
    ] = None,
    weight_scope: Annotated[
        str | None,
        typer.Option(help="Scope of job weights and priorities: cluster, tenant or entitlement."),
    ] = None,
    speeds: Annotated[
        str | None,
        typer.Option(help="Speeds table: CSV, Gavel JSON, or the name of a bundled table."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Change the policy of the running server, in a round that starts now; for admins.

    Settings without an option stay as they are; a new policy brings its own mechanism. Running
    jobs keep their devices until the first plan. If a job that has not ended could never run
    under the new policy, nothing changes. The change outlives restarts, until the server is
    started with other settings for policy, mechanism, round, weight scope or speeds.

    Example:  fairlead policy set hierarchical

    Example:  fairlead policy set --round 120 --speeds speeds.csv
    """
    from fairlead.client import Client
    from fairlead.files import read_speeds
    from fairlead.files.speeds.table import format_speeds
    from fairlead.model.errors import UsageError

    wanted: dict[str, Any] = {
        "policy": policy,
        "mechanism": mechanism,
        "round_s": round_s,
        "weight_scope": weight_scope,
        "speeds": None if speeds is None else format_speeds(read_speeds(speeds)),
    }
    change = {name: value for name, value in wanted.items() if value is not None}
    if not change:
        options = "--mechanism, --round, --weight-scope or --speeds"
        raise UsageError(f"nothing to change: expected a policy, {options}")
    _print(Client.from_environment().ask("PUT", "/v1/policy", change), as_json)


def _print(answer: dict[str, Any], as_json: bool) -> None:
    from fairlead.cli.shared.json_output import print_json
    from fairlead.cli.shared.output import table

    if as_json:
        print_json(answer)
        return
    rows = [
        ["policy", answer["policy"]],
        ["mechanism", answer["mechanism"]],
        ["round", "–" if answer["round_s"] is None else f"{answer['round_s']:g} s"],
        ["weight scope", answer["weight_scope"]],
        ["speeds", answer["speeds"]],
        ["set by", origin_of(answer)],
    ]
    table("policy", ["", "value"], rows, figures=False)
