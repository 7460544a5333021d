"""Text summary of a comparison."""

from collections.abc import Sequence

from fairlead.sim.compare import Comparison, Outcome
from fairlead.sim.report.means import (
    AVERAGE_JCT,
    FAIRNESS,
    UTILIZATION,
    KeyFigure,
    load_text,
    mean,
    outcomes_by_policy,
)

NEGLIGIBLE_DIFFERENCE = 0.02
"""relative difference of means below which they are called equal"""


def summary(comparison: Comparison, outcomes: Sequence[Outcome]) -> str:
    """Return a paragraph that compares speed, fairness and utilization of the policies."""
    load = comparison.chosen_load
    runs = outcomes_by_policy(outcomes, load)
    first, *others = comparison.policies
    where = "On the given trace" if load is None else f"At {load_text(load)}"
    if load is None and comparison.recipe is not None:
        where = "With all jobs submitted at the start"
    sentences = [_unfinished(comparison, outcomes)]
    if others:
        ratios = [_speed(runs[first], runs[other], other) for other in others]
        sentences.append(f"{where}, {first} completes jobs {join_with_and(ratios)}.")
        sentences.append(_highest_load(comparison, outcomes))
    sentences.append(
        _best(runs, FAIRNESS, "Finish-time fairness ρ is best (lowest) under", high=False)
    )
    sentences.append(_best(runs, UTILIZATION, "Devices are busiest under", high=True, unit="%"))
    return " ".join(filter(None, sentences))


def _speed(first: Sequence[Outcome], other: Sequence[Outcome], name: str) -> str:
    """Return the clause that compares the first policy's average completion time."""
    a, b = mean(first, AVERAGE_JCT).value, mean(other, AVERAGE_JCT).value
    if not a or not b:
        return f"incomparably with {name}"
    figures = (
        f"({AVERAGE_JCT.text(a)} h against {AVERAGE_JCT.text(b)} h{_agreement(first, other)})"
    )
    if abs(b / a - 1) < NEGLIGIBLE_DIFFERENCE:
        return f"about as fast as {name} {figures}"
    if b > a:
        return f"{b / a:.2f}× faster on average than {name} {figures}"
    return f"{a / b:.2f}× slower on average than {name} {figures}"


def _agreement(first: Sequence[Outcome], other: Sequence[Outcome]) -> str:
    """Return the number of seeds in which the first policy was faster, if there are several."""
    pairs = [
        (a, b)
        for a, b in zip(map(AVERAGE_JCT.of, first), map(AVERAGE_JCT.of, other), strict=True)
        if a is not None and b is not None
    ]
    if len(pairs) < 2:
        return ""
    wins = sum(a < b for a, b in pairs)
    return f"; faster in {wins} of {len(pairs)} seeds"


def _highest_load(comparison: Comparison, outcomes: Sequence[Outcome]) -> str:
    """Return the sentence on the highest load, if it is not the chosen load."""
    highest = max((load for load in comparison.loads if load is not None), default=None)
    if highest is None or highest == comparison.chosen_load:
        return ""
    runs = outcomes_by_policy(outcomes, highest)
    base = mean(runs[comparison.policies[0]], AVERAGE_JCT).value
    averages = [f"{AVERAGE_JCT.text(base)} h under {comparison.policies[0]}"]
    for policy in comparison.policies[1:]:
        value = mean(runs[policy], AVERAGE_JCT).value
        if base and value:
            averages.append(f"{AVERAGE_JCT.text(value)} h ({value / base:.2f}×) under {policy}")
    return f"At the highest load, {load_text(highest)}, the average is {join_with_and(averages)}."


def _best(
    runs: dict[str, list[Outcome]], quantity: KeyFigure, lead: str, *, high: bool, unit: str = ""
) -> str:
    values = {p: v for p, o in runs.items() if (v := mean(o, quantity).value) is not None}
    if len(values) < 2:
        return ""
    order = sorted(values, key=values.__getitem__, reverse=high)
    shown = [f"{policy} ({quantity.text(values[policy])}{unit})" for policy in order]
    return f"{lead} {shown[0]}, then {join_with_and(shown[1:])}."


def _unfinished(comparison: Comparison, outcomes: Sequence[Outcome]) -> str:
    counts = []
    for policy in comparison.policies:
        runs = [o for o in outcomes if o.run.policy == policy]
        left = sum(o.figures.unfinished for o in runs)
        if left:
            counts.append(f"{policy} left {left} of {sum(len(o.jobs.id) for o in runs)}")
    if not counts:
        return ""
    return (
        f"Some jobs did not finish, and completion times count finished jobs only:"
        f" {join_with_and(counts)}."
    )


def join_with_and(parts: Sequence[str]) -> str:
    """Return parts joined as text: a, b and c."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
