"""Audits as rows of a table: one a figure, or one a policy."""

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
"""the same, short enough for one line of a terminal"""
_HOLDS = 1e-6
"""figures up to this break nothing"""


def details(audit: Audit) -> list[list[str]]:
    """Return a row for each figure: its name, value and witness."""
    return [
        [LABELS[name], percent(value), witness(audit, name)]
        for name, value in _in_order(audit).items()
    ]


def worst_rows(audits: Sequence[Audit]) -> list[list[str]]:
    """Return a row for each policy: the worst of each figure over all its audits."""
    policies = dict.fromkeys(audit.policy for audit in audits)
    return [
        [policy, *(text for text, _ in worst([a for a in audits if a.policy == policy]).values())]
        for policy in policies
    ]


def worst(audits: Sequence[Audit]) -> dict[str, tuple[str, Audit]]:
    """Return figure → its worst value in words, and the audit that has it."""
    found = {}
    for name in LABELS:
        having = [(figures[name], a) for a in audits if name in (figures := a.figures())]
        if having:
            pick = min if name == "efficiency" else max
            value, audit = pick(having, key=lambda pair: pair[0])
            found[name] = (percent(value), audit)
    return found


def markdown_table(audits: Sequence[Audit]) -> str:
    """Return the worst figures of each policy as a table in Markdown.

    ✓: no instance breaks it; ✗: the figure, and the instance that has it.
    """
    headings = ["policy", *LABELS.values()]
    lines = ["| " + " | ".join(headings) + " |", "|" + "---|" * len(headings)]
    for policy in dict.fromkeys(audit.policy for audit in audits):
        cells = [f"`{policy}`"]
        for name, (text, audit) in worst([a for a in audits if a.policy == policy]).items():
            value = audit.figures()[name]
            holds = value >= 1 - _HOLDS if name == "efficiency" else value <= _HOLDS
            cells.append("✓" if holds else f"✗ {text} ({audit.where})")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _in_order(audit: Audit) -> dict[str, float]:
    figures = audit.figures()
    return {name: figures[name] for name in LABELS if name in figures}
