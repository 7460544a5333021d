"""Text of an explanation."""

import math

from fairlead.insight.audit.witnesses import percent
from fairlead.insight.explain.explain import Explanation, JobSpeed, Outcome
from fairlead.model.allocation import Allocation
from fairlead.model.speeds.interval import interval_80
from fairlead.model.speeds.text import speed_text
from fairlead.sim.report.summary import join_with_and

_SOURCES = {
    "measured": "measured",
    "table": "from the speed table",
    "assumed": "assumed, not measured yet",
}


def paragraphs(explanation: Explanation) -> list[str]:
    """Return paragraphs on the current speed, binding constraints, prices and changes."""
    return [
        _describe_current(explanation),
        *_believed_speeds(explanation),
        *_end(explanation),
        _binding(explanation),
        _prices(explanation),
        *_changes(explanation),
    ]


def _describe_current(explanation: Explanation) -> str:
    subject, accelerators = explanation.subject, explanation.snap.cluster.accelerators
    held = [
        f"{devices:.3g} {accelerator}"
        for accelerator, devices in zip(accelerators, explanation.devices.tolist(), strict=True)
        if devices > 1e-6
    ]
    has = f"holding {join_with_and(held)} on average" if held else "holding no devices"
    lead = ""
    if subject.of_job is not None:
        lead = f"{explanation.policy} allocates to tenants; {subject.of_job} is a job of"
        lead += f" {subject.name}. "
    if subject.is_tenant:
        n = len(subject.rows)
        jobs = "one job" if n == 1 else f"{n} jobs"
        return (
            f"{lead}Under {explanation.policy}, tenant {subject.name} with {jobs} has a normalised"
            f" speed of {explanation.speed:.4g}, {has}."
        )
    makes = "is assumed to make" if explanation.rests_on_assumptions else "makes"
    return (
        f"Under {explanation.policy}, job {subject.name} {makes} {speed_text(explanation.speed)}"
        f" (normalised speed {explanation.normal:.4g}), {has}."
    )


def _believed_speeds(explanation: Explanation) -> list[str]:
    """Return a paragraph on the job's speed on each accelerator, with its source."""
    if not explanation.believed:
        return []
    speeds = [
        f"{speed_text(speed.steps_per_s)} on {name} ({_SOURCES[speed.source]}{_doubt(speed)})"
        for name, speed in explanation.believed.items()
    ]
    job = explanation.subject.of_job or explanation.subject.name
    return [f"Believed speed of {job}: {join_with_and(speeds)}."]


def _doubt(speed: JobSpeed) -> str:
    """Return the bounds of an assumed speed and the one that decisions use; empty if unknown."""
    if speed.doubt is None:
        return ""
    low, high = interval_80(speed.steps_per_s, speed.doubt)
    text = f"; {low:.2g} to {high:.2g} with 80 % probability"
    if speed.planned_steps_per_s is not None:
        text += f"; decisions use {speed.planned_steps_per_s:.4g} until it was tried"
    return text


def _end(explanation: Explanation) -> list[str]:
    """Return a paragraph on the time until the job ends, with its bounds if speeds are assumed."""
    if explanation.left_s is None or explanation.steps_left is None:
        return []
    expected, low, high = map(_duration, explanation.left_s)
    text = f"At this speed, its remaining {explanation.steps_left:,.0f} steps take {expected}"
    if low != high:
        text += f"; {low} to {high} with 80 % probability"
    return [f"{text}. Jobs that arrive or end change it."]


def _duration(seconds: float) -> str:
    """Return a duration of two digits, such as ``40 s`` or ``3.5 h``."""
    sizes = (("days", 86400.0), ("h", 3600.0), ("min", 60.0))
    unit, size = next((one for one in sizes if seconds >= 2.0 * one[1]), ("s", 1.0))
    return f"{float(f'{seconds / size:.2g}'):g} {unit}"


def _binding(explanation: Explanation) -> str:
    own = [b.why for b in explanation.binding if b.what != "devices"]
    full = [b.on for b in explanation.binding if b.what == "devices" and b.on]
    if full:
        own.append(f"every {join_with_and(full)} is in use")
    if not own:
        return "No constraint binds it: usable devices are idle."
    return f"Binding constraints: {'; '.join(own)}."


def _has_zero_prices(allocation: Allocation) -> bool:
    """Return whether an allocation has prices and all of them are 0."""
    return allocation.prove is not None and not any(allocation.prove().prices)


def _prices(explanation: Explanation) -> str:
    prices, accelerators = explanation.prices, explanation.snap.cluster.accelerators
    if prices is None and _has_zero_prices(explanation.allocation):
        return "No device is scarce at the lowest level, so all prices are 0."
    if prices is None:
        return f"{explanation.policy} has no prices, so the value of devices is unknown."
    of = [
        f"{accelerator} {price:.4g}"
        for accelerator, price in zip(accelerators, prices.price, strict=True)
    ]
    unit = "normalised speed" if explanation.subject.is_tenant else "step/s"
    costs = [
        (f"{cost:.4g}", accelerator)
        for accelerator, cost in zip(accelerators, prices.per_speed, strict=True)
        if cost
    ]
    # The last bits of equal costs differ between machines: order by the shown figures.
    costs.sort(key=lambda shown: float(shown[0]))
    cost = [f"{value} on {accelerator}" for value, accelerator in costs]
    text = (
        f"The price of a device is {join_with_and(of)} (only ratios matter). At these prices"
        f" it holds {percent(prices.part)} of the value of all devices."
    )
    if cost:
        text += f" One {unit} costs {join_with_and(cost)}."
    if prices.gain_per_device is None:
        text += " They predict no effect of small changes, because another constraint binds it."
    return text


def _changes(explanation: Explanation) -> list[str]:
    cheapest, largest = explanation.cheapest, explanation.largest
    if cheapest is None or largest is None:
        return ["No tried change raises its speed by one per cent or more."]
    texts = [f"Cheapest change: it would run {_outcome(cheapest)}"]
    if largest is not cheapest:
        texts.append(f"Most effective change: it would run {_outcome(largest)}")
    others = [
        f"{_faster(o)} {o.change.what}"
        for o in explanation.outcomes
        if o not in (cheapest, largest) and o.gain > 1e-3
    ]
    if others:
        texts.append(f"Other changes: {'; '.join(others)}.")
    return texts


def _faster(outcome: Outcome) -> str:
    if math.isinf(outcome.gain):
        return f"at {outcome.speed:.4g} instead of not at all"
    return f"{percent(outcome.gain)} faster"


def _outcome(outcome: Outcome) -> str:
    text = f"{_faster(outcome)} {outcome.change.what}"
    if outcome.change.assumed:
        text += f" ({outcome.change.assumed})"
    if outcome.others < -1e-6:
        text += f"; others would lose up to {percent(-outcome.others)}"
    if outcome.marginal is not None:
        text += f"; the prices predict {percent(outcome.marginal)}"
        text += "" if outcome.linear else ", which is valid for small changes only"
    return text + "."
