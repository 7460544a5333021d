"""Options that several commands share, declared once."""

from pathlib import Path
from typing import Annotated

import typer

Json = Annotated[
    bool, typer.Option("--json", help="One JSON document on stdout, nothing else there.")
]
ClusterOption = Annotated[
    str, typer.Option(help="Devices of each accelerator, /n to a node, or a YAML file.")
]
SpeedsOption = Annotated[
    str, typer.Option(help="Steps per second: CSV, Gavel JSON, or a bundled table's name.")
]
PolicyOption = Annotated[str, typer.Option(help="Who should get what: see `fairlead policies`.")]
MechanismOption = Annotated[
    str | None,
    typer.Option(
        help="How shares are realised: see `fairlead policies`.", show_default="the policy's"
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
    float, typer.Option(help="Seconds that a job loses when it starts again.", min=0, max=1e9)
]
PhysicsOption = Annotated[
    str,
    typer.Option(help="What slows jobs beyond the speeds: none, gandiva, or a JSON or YAML file."),
]
TenantsOption = Annotated[
    Path | None,
    typer.Option(
        "--tenants-file", help="JSON or YAML: tenants' weights, parents, quotas, priorities."
    ),
]
WindowOption = Annotated[
    str | None, typer.Option(help="Report jobs A to B-1 only, stop when they are done: A:B.")
]
