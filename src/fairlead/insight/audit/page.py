"""The page of an audit: figures that people would rather look at than read."""

import html
from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from fairlead import __version__
from fairlead.insight.audit.audit import Audit
from fairlead.insight.audit.misreport import SIDES, Misreport
from fairlead.insight.audit.summary import LABELS, details, worst_rows
from fairlead.insight.audit.witnesses import percent, witness
from fairlead.model.arrays import IntArray
from fairlead.model.errors import SolveError
from fairlead.sim.report.page import drawn, figures_json, page_head, resource
from fairlead.sim.report.style import Figure, Palette, View, axis, picture
from fairlead.sim.report.summary import listed

_SHOWN = 40
"""participants in a figure; of more, those who have the worst of it"""
_CLIPPED = 2.0
"""envy beyond this has the same colour"""
_CURVE = np.linspace(0.0, 1.5, 31)
"""parts of the best lie at which its gain is drawn"""


def audit_page(audits: Sequence[Audit]) -> str:
    """Return one page of HTML that needs nothing but a browser."""
    figures = figures_of(audits)
    parts = [
        page_head(_title(audits)),
        f"<p class='lead'>{html.escape(_lead(audits))}</p>",
        _setting(audits[0]),
        "<h2>Figures</h2>",
        *([_worst(audits)] if len(audits) > 1 else []),
        *map(_details, audits),
        *map(drawn, figures),
        f"<footer>Made by fairlead {__version__}.</footer></main>",
        f"<script>{get_plotlyjs()}</script>",
        f"<script type='application/json' id='figures'>{figures_json(figures)}</script>",
        f"<script>{resource('page.js')}</script></body></html>\n",
    ]
    return "\n".join(parts)


def figures_of(audits: Sequence[Audit]) -> list[Figure]:
    """Return the figures in the order in which they are read, with a view for each audit."""
    names = [_name(audit, audits) for audit in audits]
    note = ""
    if any(len(audit.parties) > _SHOWN for audit in audits):
        note = f"Only the {_SHOWN} who have the worst of it are shown."
    views = list(zip(names, audits, strict=True))
    found = [
        Figure(
            "envy",
            "Who envies whom",
            "How much faster the one on the left would go with the devices of the one below,"
            " scaled to its own weight. Red: it would rather have them. Blue: it would not.",
            tuple(View(name, _envy(audit)) for name, audit in views),
            note=note,
        ),
        Figure(
            "incentive",
            "What everybody gets, and would get by an equal split",
            "Normalised speed. Who stands left of its equal split would rather not share.",
            tuple(View(name, _incentive(audit)) for name, audit in views),
            note=note,
        ),
    ]
    lied = [(name, audit) for name, audit in views if _lies(audit)]
    if lied:
        found.append(
            Figure(
                "lies",
                "What lies gain",
                "True speed gained by whoever gains most, over how far its report strays from"
                " the truth (1). Jumps are where it overtakes another's speed-up.",
                tuple(View(name, _curves(audit)) for name, audit in lied),
            )
        )
    return found


def _title(audits: Sequence[Audit]) -> str:
    policies = list(dict.fromkeys(audit.policy for audit in audits))
    where = list(dict.fromkeys(audit.where for audit in audits))
    on = where[0] if len(where) == 1 else f"{len(where)} instances"
    return html.escape(
        f"How fair {listed(policies)} {'is' if len(policies) == 1 else 'are'} on {on}"
    )


def _lead(audits: Sequence[Audit]) -> str:
    said = []
    for audit in audits[:4]:
        broken = [
            witness(audit, name)
            for name, value in audit.figures().items()
            if name != "efficiency" and value > 1e-6
        ]
        verdict = "; ".join(broken) if broken else "nothing was found that anybody could resent"
        said.append(f"{_name(audit, audits)}: {verdict}.")
    return " ".join(said)


def _name(audit: Audit, audits: Sequence[Audit]) -> str:
    alone = len({a.where for a in audits}) == 1
    return audit.policy if alone else f"{audit.policy} on {audit.where}"


def _setting(audit: Audit) -> str:
    rows = {
        "participants": f"{len(audit.parties)} {audit.parties.by}",
        "compared with": audit.parties.feasible_set,
        "speeds": "normalised: in devices of average speed"
        if audit.parties.timed
        else "normalised: in devices of the slowest accelerator",
    }
    if audit.lies is not None:
        rows["lies"] = f"{audit.lies.solves} tried, for {audit.lies.asked} participants"
    cells = "".join(
        f"<dt>{html.escape(name)}</dt><dd>{html.escape(text)}</dd>" for name, text in rows.items()
    )
    return f"<section class='setting'><h2>What was measured</h2><dl>{cells}</dl></section>"


def _worst(audits: Sequence[Audit]) -> str:
    return _table("The worst of all", ["policy", *LABELS.values()], worst_rows(audits))


def _details(audit: Audit) -> str:
    name = f"{audit.policy} on {audit.where}" if audit.where else audit.policy
    return _table(name, ["figure", "", "what shows it"], details(audit), words=True)


def _table(
    caption: str, headings: Sequence[str], rows: Sequence[Sequence[str]], *, words: bool = False
) -> str:
    """Return a table of figures; ``words`` says that the last column holds words."""
    looks = [""] * (len(headings) - 1) + [" style='text-align:left;white-space:normal'" * words]
    head = "".join(
        f"<th{look}>{html.escape(heading)}</th>"
        for heading, look in zip(headings, looks, strict=True)
    )
    body = "".join(
        f"<tr><th>{html.escape(first)}</th>"
        + "".join(
            f"<td{look}>{html.escape(cell)}</td>"
            for cell, look in zip(rest, looks[1:], strict=True)
        )
        + "</tr>"
        for first, *rest in rows
    )
    return (
        f"<div class='wide'><table><caption>{html.escape(caption)}</caption>"
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _chosen(audit: Audit) -> IntArray:
    """Return whom a figure shows: all, or those with the most envy and the greatest gap."""
    n = len(audit.parties)
    if n <= _SHOWN:
        return np.arange(n)
    worst = np.maximum(audit.envy.table.max(axis=1), audit.incentive.gap)
    return np.sort(np.argsort(-worst, kind="stable")[:_SHOWN])


def _envy(audit: Audit) -> go.Figure:
    shown = _chosen(audit)
    table = audit.envy.table[np.ix_(shown, shown)]
    names = [audit.parties.names[i] for i in shown.tolist()]
    top = min(max(float(np.abs(table).max()), 0.01), _CLIPPED)
    told = [
        ["" if i == k else percent(table[i, k]) for k in range(len(names))]
        for i in range(len(names))
    ]
    trace = go.Heatmap(
        z=np.where(np.eye(len(names)) > 0, np.nan, 100 * np.clip(table, -top, top)).tolist(),
        x=names,
        y=names,
        customdata=told,
        text=told if len(names) <= 12 else None,
        texttemplate="%{text}" if len(names) <= 12 else None,
        zmid=0,
        zmin=-100 * top,
        zmax=100 * top,
        colorscale=[[0, "#0072B2"], [0.5, "#F5F7F9"], [1, "#D55E00"]],
        colorbar={"title": {"text": "gain (%)"}, "thickness": 14},
        hovertemplate="%{y} with the devices of %{x}: %{customdata}<extra></extra>",
    )
    return picture(
        [trace],
        height=180 + 26 * max(len(names), 8),
        xaxis=axis("whose devices", type="category", showgrid=False),
        yaxis=axis("who", type="category", autorange="reversed", showgrid=False),
    )


def _incentive(audit: Audit) -> go.Figure:
    shown = _chosen(audit)
    names = [audit.parties.names[i] for i in shown.tolist()]
    got, equal = audit.received.value[shown], audit.incentive.equal[shown]
    line = Palette.of(["received", "equal"], ()).policies
    joined = go.Scatter(
        x=[x for a, b in zip(got, equal, strict=True) for x in (float(a), float(b), None)],
        y=[y for name in names for y in (name, name, None)],
        mode="lines",
        line={"color": "#999999", "width": 2},
        showlegend=False,
        hoverinfo="skip",
    )
    traces = [joined] + [
        go.Scatter(
            x=values.tolist(),
            y=names,
            mode="markers",
            name=name,
            marker={"size": 12, "color": line[key]["color"], "symbol": symbol},
            hovertemplate=f"%{{y}}: %{{x:.4g}} {name}<extra></extra>",
        )
        for key, name, symbol, values in (
            ("received", "received", "circle", got),
            ("equal", "with an equal split", "line-ns-open", equal),
        )
    ]
    traces[-1].marker.line = {"width": 3, "color": line["equal"]["color"]}
    return picture(
        traces,
        height=150 + 26 * max(len(names), 6),
        xaxis=axis("normalised speed", rangemode="tozero"),
        yaxis=axis("", type="category", autorange="reversed"),
    )


def _lies(audit: Audit) -> dict[str, Misreport]:
    if audit.lies is None:
        return {}
    both = {"over": audit.lies.over, "under": audit.lies.under}
    return {side: lie for side in SIDES if (lie := both[side]) is not None}


def _curves(audit: Audit) -> go.Figure:
    looks = Palette.of(list(SIDES), ()).policies
    kinds = audit.court.snap.cluster.accelerators
    traces = []
    for side, lie in _lies(audit).items():
        most = int(np.abs(np.log(lie.times)).argmax())
        on = listed([kind for kind, x in zip(kinds, lie.times.tolist(), strict=True) if x != 1])
        name = f"{audit.parties.names[lie.who]} {side}-reports {on}"
        points = [(lie.times**part, _gain(audit, lie, part)) for part in _CURVE.tolist()]
        traces.append(
            go.Scatter(
                x=[float(f"{times[most]:.6g}") for times, _ in points],
                y=[None if gain is None else 100 * gain for _, gain in points],
                name=name,
                mode="lines+markers",
                marker={"size": 5},
                line={**looks[side], "width": 2},
                hovertemplate="reporting %{x:.3g} × its speed gains %{y:.2f} %<extra></extra>",
            )
        )
    return picture(
        traces,
        height=380,
        xaxis=axis("reported over true speed", type="log"),
        yaxis=axis("true speed gained (%)"),
    )


def _gain(audit: Audit, lie: Misreport, part: float) -> float | None:
    try:
        return audit.court.gain(lie.who, lie.times**part)
    except SolveError:
        return None
