"""The ``fairlead`` command."""

import sys
from typing import Annotated, Any

import typer

from fairlead.cli.commands import Commands
from fairlead.cli.lazy_commands import Command, LazyCommands
from fairlead.cli.shared import errors
from fairlead.version import __version__

_ABOUT = """A fair, heterogeneity-aware scheduler for shared GPU clusters.

First steps: `fairlead demo` runs a small cluster here. `fairlead serve` starts a scheduler, and
`fairlead submit train.py` a job. `fairlead compare --policies max-min,fifo` simulates policies.
"""

_TRAIN = "Train: submit and follow jobs"
_OPERATE = "Operate: run and manage a cluster"
_RESEARCH = "Research: simulate and compare policies"

_SCRIPT_ENDS_OPTIONS = {"allow_interspersed_args": False}

_COMMANDS = {
    "submit": Command(_TRAIN, "client.submit:submit", _SCRIPT_ENDS_OPTIONS),
    "tune": Command(_TRAIN, "client.tune:tune", _SCRIPT_ENDS_OPTIONS),
    "jobs": Command(_TRAIN, "client.jobs:jobs"),
    "job": Command(_TRAIN, "client.jobs:job"),
    "logs": Command(_TRAIN, "client.jobs:logs"),
    "profile": Command(_TRAIN, "profile.profile:profile", _SCRIPT_ENDS_OPTIONS),
    "cancel": Command(_TRAIN, "client.actions:cancel"),
    "suspend": Command(_TRAIN, "client.actions:suspend"),
    "resume": Command(_TRAIN, "client.actions:resume"),
    "priority": Command(_TRAIN, "client.actions:priority", {"ignore_unknown_options": True}),
    "explain": Command(_TRAIN, "research.explain:explain"),
    "secret": Command(_TRAIN, "client.secrets:app"),
    "login": Command(_TRAIN, "client.access:login"),
    "demo": Command(_TRAIN, "demo.demo:demo"),
    "serve": Command(_OPERATE, "operate.serve:serve"),
    "ready": Command(_OPERATE, "operate.ready:ready"),
    "doctor": Command(_OPERATE, "operate.doctor:doctor"),
    "backup": Command(_OPERATE, "operate.backup:backup"),
    "restore": Command(_OPERATE, "operate.backup:restore"),
    "config": Command(_OPERATE, "operate.config:app"),
    "policy": Command(_OPERATE, "operate.policy:app"),
    "limits": Command(_OPERATE, "operate.limits:app"),
    "nodes": Command(_OPERATE, "client.cluster:nodes"),
    "tenants": Command(_OPERATE, "client.tenants:tenants"),
    "shares": Command(_OPERATE, "client.tenants:shares"),
    "usage": Command(_OPERATE, "client.usage:usage"),
    "speeds": Command(_OPERATE, "client.speeds:app"),
    "tokens": Command(_OPERATE, "client.access:tokens"),
    "audit-trail": Command(_OPERATE, "operate.audit_trail:app"),
    "export": Command(_OPERATE, "export.export:export"),
    "simulate": Command(_RESEARCH, "research.simulate:simulate"),
    "compare": Command(_RESEARCH, "research.compare:compare"),
    "allocate": Command(_RESEARCH, "research.allocate:allocate"),
    "audit": Command(_RESEARCH, "research.audit:audit"),
    "policies": Command(_RESEARCH, "research.policies:policies"),
    "replay": Command(_RESEARCH, "research.replay:replay"),
    "trace": Command(_RESEARCH, "research.trace:app"),
}


class _Fairlead(Commands):
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = LazyCommands(_COMMANDS)


app = typer.Typer(
    name="fairlead",
    cls=_Fairlead,
    help=_ABOUT,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


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
