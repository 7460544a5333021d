"""How the figures of a report look: colours, axes, and the parts a figure is made of."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go

# Okabe and Ito's colours, which people with any colour vision tell apart. Black and yellow are
# left to the end: each vanishes on one of the two backgrounds.
_POLICY_COLOURS = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#E69F00",
    "#56B4E9",
    "#8C8C8C",
    "#B8A900",
)
_DASHES = ("solid", "dash", "dot", "dashdot")
# Paul Tol's light scheme, made for areas; none of them is a policy's colour.
_TENANT_COLOURS = (
    "#77AADD",
    "#EE8866",
    "#44BB99",
    "#FFAABB",
    "#BBCC33",
    "#99DDFF",
    "#EEDD88",
    "#AAAA00",
)
_NEUTRAL = "#999999"
REFERENCE = "reference"
"""marks a line to compare others with, which the page draws in the colour of its text"""


@dataclass(frozen=True, slots=True)
class View:
    """One of the pictures that a figure shows, chosen by its name."""

    name: str
    picture: go.Figure


@dataclass(frozen=True, slots=True)
class Figure:
    """A titled figure with a line that says how to read it."""

    id: str
    title: str
    caption: str
    views: tuple[View, ...]
    chosen: int = 0
    """the view that is shown first"""
    note: str = ""
    """what is missing from it, if anything"""


@dataclass(frozen=True, slots=True)
class Palette:
    """The same look for a policy or tenant in every figure."""

    policies: Mapping[str, dict[str, str]]
    """policy → plotly's line: colour, and a dash once the colours repeat"""
    tenants: Mapping[str, str]

    @classmethod
    def of(cls, policies: Sequence[str], tenants: Sequence[str]) -> "Palette":
        """Return looks for all policies, and for as many tenants as there are colours."""
        n = len(_POLICY_COLOURS)
        lines = {
            policy: {"color": _POLICY_COLOURS[i % n], "dash": _DASHES[i // n % len(_DASHES)]}
            for i, policy in enumerate(policies)
        }
        coloured = sorted(tenants[: len(_TENANT_COLOURS)])
        return cls(lines, dict(zip(coloured, _TENANT_COLOURS, strict=False)))

    def tenant(self, name: str) -> tuple[str, str]:
        """Return a tenant's colour and legend; those beyond the palette share one in grey."""
        if name in self.tenants:
            return self.tenants[name], name
        return _NEUTRAL, "other tenants"


def picture(traces: Sequence[Any], *, height: int, **layout: Any) -> go.Figure:
    """Return traces in the report's layout; the page adds the colours of its theme."""
    look: dict[str, Any] = {
        "template": "none",
        "height": height,
        "margin": {"l": 70, "r": 20, "t": 40, "b": 60},
        "font": {"family": "system-ui, sans-serif", "size": 13},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"},
        "hoverlabel": {"align": "left", "namelength": -1},
    }
    return go.Figure(traces, {**look, **layout})


def axis(title: str, **more: Any) -> dict[str, Any]:
    """Return an axis with a title that gives the unit."""
    return {"title": {"text": title}, "automargin": True, "showgrid": True, **more}


def log_ticks(low: float, high: float) -> dict[str, Any]:
    """Return ticks at 1, 2 and 5 of every decade between two positive values."""
    ticks = [m * 10.0**e for e in range(-6, 10) for m in (1, 2, 5)]
    shown = [tick for tick in ticks if low / 2.5 <= tick <= high * 2.5]
    return {"type": "log", "tickvals": shown, "ticktext": [f"{tick:g}" for tick in shown]}
