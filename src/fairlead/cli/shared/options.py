"""Options shared by several commands."""

from pathlib import Path
from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]
ClusterOption = Annotated[
    str, typer.Option(help="Devices per accelerator, with /n devices per node, or a YAML file.")
]
SpeedsOption = Annotated[
    str, typer.Option(help="Speeds table: CSV, Gavel JSON, or the name of a bundled table.")
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
        min=1e-3,
        show_default="the mechanism's",
    ),
]
RestoreCostOption = Annotated[
    float, typer.Option(help="Seconds lost when a job restarts.", min=0, max=1e9)
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
    typer.Option(help="Report jobs A to B-1 only and stop when they have finished: A:B."),
]
