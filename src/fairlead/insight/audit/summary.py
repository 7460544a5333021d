"""Table rows of audits: one per figure, or one per policy."""

from collections.abc import Sequence

from fairlead.insight.audit.audit import Audit
from fairlead.insight.audit.witnesses import percent, witness

LABELS = {
    "pareto_slack": "Pareto slack",
    "envy": "envy",
    "sharing_incentive": "sharing-incentive gap",
    "over_report": "gain by over-reporting",
    "under_report": "gain by under-reporting",
    "efficiency": "efficiency",
}
HEADINGS = ["policy", "slack", "envy", "gap", "over", "under", "efficiency"]
"""short labels for one line of a terminal"""
_WITHIN_LIMIT = 1e-6
"""figures up to this count as 0"""
_MAX_NAMED = 10
"""assumed speeds that are named"""


def details(audit: Audit) -> list[list[str]]:
    """Return one row per figure: label, value and witness."""
    if_true = " if assumed speeds are true" if audit.assumed_speeds else ""
    return [
        [LABELS[name], percent(value) + if_true, witness(audit, name)]
        for name, value in _in_order(audit).items()
    ]


def assumptions(audit: Audit) -> str:
    """Return a sentence on the assumed speeds that an audit rests on; empty if on none."""
    assumed = audit.assumed_speeds
    if not assumed:
        return ""
    named = ", ".join(assumed[:_MAX_NAMED]) + (", …" if len(assumed) > _MAX_NAMED else "")
    return (
        f"{len(assumed)} of {audit.believed_speeds} speeds are assumed, not measured: {named}."
        " The figures are true only if these are."
    )


def worst_rows(audits: Sequence[Audit]) -> list[list[str]]:
    """Return one row per policy: the worst value of each figure over all its audits."""
    policies = dict.fromkeys(audit.policy for audit in audits)
    return [
        [policy, *(text for text, _ in worst([a for a in audits if a.policy == policy]).values())]
        for policy in policies
    ]


def worst(audits: Sequence[Audit]) -> dict[str, tuple[str, Audit]]:
    """Return figure → its worst value as text, and the audit with that value."""
    worst_of = {}
    for name in LABELS:
        having = [(figures[name], a) for a in audits if name in (figures := a.figures())]
        if having:
            pick = min if name == "efficiency" else max
            value, audit = pick(having, key=lambda pair: pair[0])
            worst_of[name] = (percent(value), audit)
    return worst_of


def markdown_table(audits: Sequence[Audit]) -> str:
    """Return the worst figures of each policy as a Markdown table.

    ✓: holds on all instances; ✗: the worst value and its instance.
    """
    headings = ["policy", *LABELS.values()]
    lines = ["| " + " | ".join(headings) + " |", "|" + "---|" * len(headings)]
    for policy in dict.fromkeys(audit.policy for audit in audits):
        cells = [f"`{policy}`"]
        for name, (text, audit) in worst([a for a in audits if a.policy == policy]).items():
            value = audit.figures()[name]
            holds = value >= 1 - _WITHIN_LIMIT if name == "efficiency" else value <= _WITHIN_LIMIT
            cells.append("✓" if holds else f"✗ {text} ({audit.where})")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _in_order(audit: Audit) -> dict[str, float]:
    figures = audit.figures()
    return {name: figures[name] for name in LABELS if name in figures}
