"""Options shared by several commands."""

from pathlib import Path
from typing import Annotated

import typer

from fairlead.model.submission.bounds import RESTORE_COST_RANGE, ROUND_RANGE

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]
ClusterOption = Annotated[
    str,
    typer.Option(
        help="Devices: v100=8/4,k80=16 means 8 v100, 4 per node, and 16 k80 on one node. Or a YAML"
        " file."
    ),
]
SpeedsOption = Annotated[
    str,
    typer.Option(
        help="Speed table: CSV, Gavel JSON, or a bundled one by name: see `fairlead speeds"
        " tables`."
    ),
]
PolicyOption = Annotated[str, typer.Option(help="Scheduling policy: see `fairlead policies`.")]
MechanismOption = Annotated[
    str | None,
    typer.Option(
        help="Mechanism that realises shares: see `fairlead policies`.",
        show_default="the policy's",
    ),
]
RoundOption = Annotated[
    float | None,
    typer.Option(
        "--round",
        help="Length of a round in seconds.",
        min=ROUND_RANGE.least,
        max=ROUND_RANGE.most,
        show_default="the mechanism's",
    ),
]
RestoreCostOption = Annotated[
    float,
    typer.Option(
        help="Seconds lost when a job restarts.",
        min=RESTORE_COST_RANGE.least,
        max=RESTORE_COST_RANGE.most,
    ),
]
SkipOption = Annotated[
    bool,
    typer.Option(
        "--skip-impossible",
        help="Leave out jobs that can never run, and list them, instead of failing.",
    ),
]
PhysicsOption = Annotated[
    str,
    typer.Option(help="Physics model of slowdowns: none, gandiva, or a JSON or YAML file."),
]
TenantsOption = Annotated[
    Path | None,
    typer.Option(
        "--tenants-file", help="Weights, parents, quotas and priorities of tenants: JSON or YAML."
    ),
]
WindowOption = Annotated[
    str | None,
    typer.Option(
        metavar="A:B",
        help="Report jobs A to B-1 only, numbered by arrival from 0, and stop when they have"
        " finished.",
        show_default="all",
    ),
]
