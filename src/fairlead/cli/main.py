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
    usage,
)
from fairlead.cli.demo import demo
from fairlead.cli.export import export
from fairlead.cli.operate import config, doctor, serve
from fairlead.cli.research import (
    allocate,
    audit,
    compare,
    explain,
    replay,
    simulate,
    trace,
)
from fairlead.cli.shared import errors
from fairlead.version import __version__

app = typer.Typer(
    name="fairlead",
    help="A fair, heterogeneity-aware scheduler for shared GPU clusters.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("simulate")(simulate.simulate)
app.command("compare")(compare.compare)
app.command("allocate")(allocate.allocate)
app.command("audit")(audit.audit)
app.command("explain")(explain.explain)
app.command("export")(export.export)
app.command("policies")(allocate.policies)
app.command("replay")(replay.replay)
app.add_typer(trace.app, name="trace")
app.command("serve")(serve.serve)
app.add_typer(config.app, name="config")
app.command("submit", context_settings={"allow_interspersed_args": False})(submit.submit)
app.command("jobs")(jobs.jobs)
app.command("job")(jobs.job)
app.command("logs")(jobs.logs)
app.command("cancel")(actions.cancel)
app.command("suspend")(actions.suspend)
app.command("resume")(actions.resume)
app.command("priority", context_settings={"ignore_unknown_options": True})(actions.priority)
app.add_typer(tenants.tenants, name="tenants")
app.add_typer(cluster.nodes, name="nodes")
app.command("shares")(tenants.shares)
app.add_typer(speeds.app, name="speeds")
app.command("usage")(usage.usage)
app.add_typer(access.tokens, name="tokens")
app.add_typer(access.audit_trail, name="audit-trail")
app.add_typer(secrets.app, name="secret")
app.command("login")(access.login)
app.command("doctor")(doctor.doctor)
app.command("demo")(demo.demo)


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
