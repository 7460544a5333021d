"""Style of the report's figures: colours, axes and layout."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go

# Okabe and Ito's colours, distinguishable with any colour vision. Black and yellow are replaced
# and come last: each vanishes on one of the two backgrounds.
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
# Paul Tol's light scheme for areas; none of these is a policy's colour.
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
"""marker of reference lines, which the page draws in its text colour"""


@dataclass(frozen=True, slots=True)
class View:
    """One of a figure's charts, selected by name."""

    name: str
    picture: go.Figure


@dataclass(frozen=True, slots=True)
class Figure:
    """A titled figure with a caption that explains how to read it."""

    id: str
    title: str
    caption: str
    views: tuple[View, ...]
    chosen: int = 0
    """index of the initial view"""
    note: str = ""
    """data that the figure omits, if any"""


@dataclass(frozen=True, slots=True)
class Palette:
    """Consistent colours of policies and tenants in all figures."""

    policies: Mapping[str, dict[str, str]]
    """policy → plotly line style: colour, and a dash once the colours repeat"""
    tenants: Mapping[str, str]

    @classmethod
    def of(cls, policies: Sequence[str], tenants: Sequence[str]) -> "Palette":
        """Return line styles for all policies and colours for the first tenants."""
        n = len(_POLICY_COLOURS)
        lines = {
            policy: {"color": _POLICY_COLOURS[i % n], "dash": _DASHES[i // n % len(_DASHES)]}
            for i, policy in enumerate(policies)
        }
        coloured = sorted(tenants[: len(_TENANT_COLOURS)])
        return cls(lines, dict(zip(coloured, _TENANT_COLOURS, strict=False)))

    def tenant(self, name: str) -> tuple[str, str]:
        """Return a tenant's colour and legend; tenants beyond the palette share a grey entry."""
        if name in self.tenants:
            return self.tenants[name], name
        return _NEUTRAL, "other tenants"


def picture(traces: Sequence[Any], *, height: int, **layout: Any) -> go.Figure:
    """Return traces in the report's layout; the page adds its theme colours."""
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
    """Return an axis whose title includes the unit."""
    return {"title": {"text": title}, "automargin": True, "showgrid": True, **more}


def log_ticks(low: float, high: float) -> dict[str, Any]:
    """Return log-scale ticks at 1, 2 and 5 of every decade between two positive values."""
    ticks = [m * 10.0**e for e in range(-6, 10) for m in (1, 2, 5)]
    shown = [tick for tick in ticks if low / 2.5 <= tick <= high * 2.5]
    return {"type": "log", "tickvals": shown, "ticktext": [f"{tick:g}" for tick in shown]}
