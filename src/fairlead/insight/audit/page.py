"""HTML page of audits: tables and figures."""

import html
from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from fairlead.insight.audit.audit import Audit
from fairlead.insight.audit.misreport import SIDES, Misreport
from fairlead.insight.audit.summary import LABELS, details, worst_rows
from fairlead.insight.audit.witnesses import percent, witness
from fairlead.model.arrays import IntArray
from fairlead.model.errors import SolveError
from fairlead.sim.report.page import figure_html, page_end, page_head, table_html
from fairlead.sim.report.style import Figure, Palette, View, axis, picture
from fairlead.sim.report.summary import join_with_and

_SHOWN = 40
"""participants in a figure; if there are more, the worst off"""
_MAX_SHOWN_GAIN = 2.0
"""gain at the end of the colour scale; higher gains have the same colour"""
_CURVE = np.linspace(0.0, 1.5, 31)
"""exponents of the best misreport's multipliers at which its gain is drawn"""


def audit_page(audits: Sequence[Audit]) -> str:
    """Return one self-contained HTML page."""
    figures = figures_of(audits)
    parts = [
        page_head(_title(audits)),
        f"<p class='lead'>{html.escape(_lead(audits))}</p>",
        _setting(audits[0]),
        "<h2>Figures</h2>",
        *([_worst(audits)] if len(audits) > 1 else []),
        *map(_details, audits),
        *map(figure_html, figures),
        page_end(figures),
    ]
    return "\n".join(parts)


def figures_of(audits: Sequence[Audit]) -> list[Figure]:
    """Return the figures in reading order, each with one view per audit."""
    names = [_name(audit, audits) for audit in audits]
    note = ""
    if any(len(audit.participants) > _SHOWN for audit in audits):
        note = f"Only the {_SHOWN} participants that are worst off."
    views = list(zip(names, audits, strict=True))
    figures = [
        Figure(
            "envy",
            "Envy",
            "Relative gain in speed of a participant (row) with the devices of another (column),"
            " scaled to its weight. Red: the row envies the column. Blue: it does not.",
            tuple(View(name, _envy(audit)) for name, audit in views),
            note=note,
        ),
        Figure(
            "incentive",
            "Received speed and equal split",
            "Normalised speed. Participants left of their equal split lose by sharing.",
            tuple(View(name, _incentive(audit)) for name, audit in views),
            note=note,
        ),
    ]
    gaining = [(name, audit) for name, audit in views if _misreports(audit)]
    if gaining:
        figures.append(
            Figure(
                "lies",
                "Gain by misreporting",
                "Gain in true speed of the participant with the highest gain, against the ratio of"
                " reported to true speed. Jumps occur where its speed-up overtakes another's.",
                tuple(View(name, _curves(audit)) for name, audit in gaining),
            )
        )
    return figures


def _title(audits: Sequence[Audit]) -> str:
    policies = list(dict.fromkeys(audit.policy for audit in audits))
    where = list(dict.fromkeys(audit.where for audit in audits))
    on = where[0] if len(where) == 1 else f"{len(where)} instances"
    return html.escape(f"Fairness audit of {join_with_and(policies)} on {on}")


def _lead(audits: Sequence[Audit]) -> str:
    verdicts = []
    for audit in audits[:4]:
        violated = [
            witness(audit, name)
            for name, value in audit.figures().items()
            if name != "efficiency" and value > 1e-6
        ]
        verdict = "; ".join(violated) if violated else "no violation found"
        verdicts.append(f"{_name(audit, audits)}: {verdict}.")
    return " ".join(verdicts)


def _name(audit: Audit, audits: Sequence[Audit]) -> str:
    alone = len({a.where for a in audits}) == 1
    return audit.policy if alone else f"{audit.policy} on {audit.where}"


def _setting(audit: Audit) -> str:
    rows = {
        "participants": f"{len(audit.participants)} {audit.participants.by}",
        "compared with": audit.participants.feasible_set,
        "speeds": "normalised: in devices of average speed"
        if audit.participants.timed
        else "normalised: in devices of the slowest accelerator",
    }
    if audit.misreports is not None:
        search = audit.misreports
        rows["misreports"] = f"{search.solves} tried, for {search.searched} participants"
    cells = "".join(
        f"<dt>{html.escape(name)}</dt><dd>{html.escape(text)}</dd>" for name, text in rows.items()
    )
    return f"<section class='setting'><h2>Parameters</h2><dl>{cells}</dl></section>"


def _worst(audits: Sequence[Audit]) -> str:
    headings = ["policy", *LABELS.values()]
    return table_html(headings, worst_rows(audits), caption="Worst values")


def _details(audit: Audit) -> str:
    name = f"{audit.policy} on {audit.where}" if audit.where else audit.policy
    return table_html(["figure", "", "witness"], details(audit), caption=name, words=True)


def _chosen(audit: Audit) -> IntArray:
    """Return the participants to show: all, or those with the most envy or the largest gap."""
    n = len(audit.participants)
    if n <= _SHOWN:
        return np.arange(n)
    worst = np.maximum(audit.envy.table.max(axis=1), audit.incentive.gap)
    return np.sort(np.argsort(-worst, kind="stable")[:_SHOWN])


def _envy(audit: Audit) -> go.Figure:
    shown = _chosen(audit)
    table = audit.envy.table[np.ix_(shown, shown)]
    names = [audit.participants.names[i] for i in shown.tolist()]
    top = min(max(float(np.abs(table).max()), 0.01), _MAX_SHOWN_GAIN)
    texts = [
        ["" if i == k else percent(table[i, k]) for k in range(len(names))]
        for i in range(len(names))
    ]
    trace = go.Heatmap(
        z=np.where(np.eye(len(names)) > 0, np.nan, 100 * np.clip(table, -top, top)).tolist(),
        x=names,
        y=names,
        customdata=texts,
        text=texts if len(names) <= 12 else None,
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
        xaxis=axis("devices of", type="category", showgrid=False),
        yaxis=axis("participant", type="category", autorange="reversed", showgrid=False),
    )


def _incentive(audit: Audit) -> go.Figure:
    shown = _chosen(audit)
    names = [audit.participants.names[i] for i in shown.tolist()]
    received, equal = audit.received.value[shown], audit.incentive.equal[shown]
    line = Palette.of(["received", "equal"], ()).policies
    joined = go.Scatter(
        x=[x for a, b in zip(received, equal, strict=True) for x in (float(a), float(b), None)],
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
            ("received", "received", "circle", received),
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


def _misreports(audit: Audit) -> dict[str, Misreport]:
    if audit.misreports is None:
        return {}
    both = {"over": audit.misreports.over, "under": audit.misreports.under}
    return {side: misreport for side in SIDES if (misreport := both[side]) is not None}


def _curves(audit: Audit) -> go.Figure:
    looks = Palette.of(list(SIDES), ()).policies
    accelerators = audit.evaluator.snap.cluster.accelerators
    traces = []
    for side, misreport in _misreports(audit).items():
        furthest = int(np.abs(np.log(misreport.multipliers)).argmax())
        on = join_with_and(
            [
                name
                for name, x in zip(accelerators, misreport.multipliers.tolist(), strict=True)
                if x != 1
            ]
        )
        name = f"{audit.participants.names[misreport.participant]} {side}-reports {on}"
        points = [
            (misreport.multipliers**part, _gain(audit, misreport, part))
            for part in _CURVE.tolist()
        ]
        traces.append(
            go.Scatter(
                x=[float(f"{multipliers[furthest]:.6g}") for multipliers, _ in points],
                y=[None if gain is None else 100 * gain for _, gain in points],
                name=name,
                mode="lines+markers",
                marker={"size": 5},
                line={**looks[side], "width": 2},
                hovertemplate="reporting %{x:.3g} × true speed gains %{y:.2f} %<extra></extra>",
            )
        )
    return picture(
        traces,
        height=380,
        xaxis=axis("reported / true speed", type="log"),
        yaxis=axis("gain in true speed (%)"),
    )


def _gain(audit: Audit, misreport: Misreport, part: float) -> float | None:
    try:
        return audit.evaluator.gain(misreport.participant, misreport.multipliers**part)
    except SolveError:
        return None
