"""The ``fairlead`` command."""

import sys
from typing import Annotated

import typer

from fairlead.cli.client import (
    access,
    actions,
    cluster,
    jobs,
    secrets,
    speeds,
    submit,
    tenants,
    tune,
    usage,
)
from fairlead.cli.demo import demo
from fairlead.cli.export import export
from fairlead.cli.operate import audit_trail, backup, config, doctor, limits, policy, ready, serve
from fairlead.cli.profile import profile
from fairlead.cli.research import (
    allocate,
    audit,
    compare,
    explain,
    policies,
    replay,
    simulate,
    speed_tables,
    trace,
)
from fairlead.cli.shared import errors
from fairlead.cli.shared.help_texts import Commands
from fairlead.version import __version__

_ABOUT = """A fair, heterogeneity-aware scheduler for shared GPU clusters.

First steps: `fairlead demo` runs a small cluster here. `fairlead serve` starts a scheduler, and
`fairlead submit train.py` a job. `fairlead compare --policies max-min,fifo` simulates policies.
"""

app = typer.Typer(
    name="fairlead",
    cls=Commands,
    help=_ABOUT,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_TRAIN = "Train: submit and follow jobs"
_OPERATE = "Operate: run and manage a cluster"
_RESEARCH = "Research: simulate and compare policies"

app.command("submit", context_settings={"allow_interspersed_args": False}, rich_help_panel=_TRAIN)(
    submit.submit
)
app.command("tune", context_settings={"allow_interspersed_args": False}, rich_help_panel=_TRAIN)(
    tune.tune
)
app.command("jobs", rich_help_panel=_TRAIN)(jobs.jobs)
app.command("job", rich_help_panel=_TRAIN)(jobs.job)
app.command("logs", rich_help_panel=_TRAIN)(jobs.logs)
app.command(
    "profile", context_settings={"allow_interspersed_args": False}, rich_help_panel=_TRAIN
)(profile.profile)
app.command("cancel", rich_help_panel=_TRAIN)(actions.cancel)
app.command("suspend", rich_help_panel=_TRAIN)(actions.suspend)
app.command("resume", rich_help_panel=_TRAIN)(actions.resume)
app.command("priority", context_settings={"ignore_unknown_options": True}, rich_help_panel=_TRAIN)(
    actions.priority
)
app.command("explain", rich_help_panel=_TRAIN)(explain.explain)
app.add_typer(secrets.app, name="secret", rich_help_panel=_TRAIN)
app.command("login", rich_help_panel=_TRAIN)(access.login)
app.command("demo", rich_help_panel=_TRAIN)(demo.demo)

app.command("serve", rich_help_panel=_OPERATE)(serve.serve)
app.command("ready", rich_help_panel=_OPERATE)(ready.ready)
app.command("doctor", rich_help_panel=_OPERATE)(doctor.doctor)
app.command("backup", rich_help_panel=_OPERATE)(backup.backup)
app.command("restore", rich_help_panel=_OPERATE)(backup.restore)
app.add_typer(config.app, name="config", rich_help_panel=_OPERATE)
app.add_typer(policy.app, name="policy", rich_help_panel=_OPERATE)
app.add_typer(limits.app, name="limits", rich_help_panel=_OPERATE)
app.add_typer(cluster.nodes, name="nodes", rich_help_panel=_OPERATE)
app.add_typer(tenants.tenants, name="tenants", rich_help_panel=_OPERATE)
app.command("shares", rich_help_panel=_OPERATE)(tenants.shares)
app.command("usage", rich_help_panel=_OPERATE)(usage.usage)
app.add_typer(speeds.app, name="speeds", rich_help_panel=_OPERATE)
app.add_typer(access.tokens, name="tokens", rich_help_panel=_OPERATE)
app.add_typer(audit_trail.app, name="audit-trail", rich_help_panel=_OPERATE)
app.command("export", rich_help_panel=_OPERATE)(export.export)

app.command("simulate", rich_help_panel=_RESEARCH)(simulate.simulate)
app.command("compare", rich_help_panel=_RESEARCH)(compare.compare)
app.command("allocate", rich_help_panel=_RESEARCH)(allocate.allocate)
app.command("audit", rich_help_panel=_RESEARCH)(audit.audit)
app.command("policies", rich_help_panel=_RESEARCH)(policies.policies)
app.command("replay", rich_help_panel=_RESEARCH)(replay.replay)
app.add_typer(trace.app, name="trace", rich_help_panel=_RESEARCH)
speeds.app.command("tables")(speed_tables.tables)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"fairlead {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    pass


def run() -> None:
    """Run the command line; an error is one line on stderr and a non-zero exit code."""
    sys.exit(errors.run(app))
