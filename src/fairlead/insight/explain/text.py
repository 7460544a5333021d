"""An explanation in plain sentences."""

import math

from fairlead.insight.audit.witnesses import percent
from fairlead.insight.explain.explain import Explanation, Outcome
from fairlead.model.allocation import Allocation
from fairlead.sim.report.summary import listed


def paragraphs(found: Explanation) -> list[str]:
    """Return what there is to say: where it stands, why, what its speed costs, what would help."""
    return [_standing(found), _binding(found), _prices(found), *_changes(found)]


def _standing(found: Explanation) -> str:
    subject, kinds = found.subject, found.snap.cluster.accelerators
    held = [
        f"{devices:.3g} {kind}"
        for kind, devices in zip(kinds, found.devices.tolist(), strict=True)
        if devices > 1e-6
    ]
    has = f"holding {listed(held)} on average" if held else "holding no devices"
    lead = ""
    if subject.of_job is not None:
        lead = f"{found.policy} gives devices to tenants; {subject.of_job} is one of"
        lead += f" {subject.name}'s jobs. "
    if subject.is_tenant:
        n = len(subject.rows)
        jobs = "one job" if n == 1 else f"{n} jobs"
        return (
            f"{lead}Under {found.policy} the tenant {subject.name}, with {jobs}, goes at"
            f" {found.speed:.4g} in normalised speed, {has}."
        )
    return (
        f"Under {found.policy} the job {subject.name} makes {found.speed:.4g} steps/s"
        f" ({found.normal:.4g} in normalised speed), {has}."
    )


def _binding(found: Explanation) -> str:
    own = [b.why for b in found.binding if b.what != "devices"]
    full = [b.on for b in found.binding if b.what == "devices" and b.on]
    if full:
        own.append(f"every {listed(full)} that it could use is taken")
    if not own:
        return "Nothing binds it: devices that it could use are idle."
    return f"What binds it: {'; '.join(own)}."


def _has_zero_prices(allocation: Allocation) -> bool:
    """Tell whether an allocation has prices, which are all 0."""
    return allocation.prove is not None and not any(allocation.prove().prices)


def _prices(found: Explanation) -> str:
    prices, kinds = found.prices, found.snap.cluster.accelerators
    if prices is None and _has_zero_prices(found.allocation):
        return "No device is scarce for those at the least level, so the price of each is 0."
    if prices is None:
        return f"{found.policy} gives no prices, so there is no saying what a device is worth."
    of = [f"{kind} {price:.4g}" for kind, price in zip(kinds, prices.price, strict=True)]
    unit = "normalised speed" if found.subject.is_tenant else "step/s"
    costs = [(cost, kind) for kind, cost in zip(kinds, prices.per_speed, strict=True) if cost]
    cost = [f"{value:.4g} on {kind}" for value, kind in sorted(costs)]
    said = (
        f"The price of a device is {listed(of)} (only their ratios count). At these prices it"
        f" holds {percent(prices.part)} of what all devices are worth."
    )
    if cost:
        said += f" One {unit} costs it {listed(cost)}."
    if prices.lift is None:
        said += " They do not tell what small changes would do for it: another limit holds it."
    return said


def _changes(found: Explanation) -> list[str]:
    cheapest, largest = found.cheapest, found.largest
    if cheapest is None or largest is None:
        return ["None of the changes that were tried raises its speed by a per cent."]
    said = [f"The cheapest change: it would go {_outcome(cheapest)}"]
    if largest is not cheapest:
        said.append(f"The change that helps most: it would go {_outcome(largest)}")
    others = [
        f"{_faster(o)} {o.change.what}"
        for o in found.outcomes
        if o not in (cheapest, largest) and o.gain > 1e-3
    ]
    if others:
        said.append(f"Others: {'; '.join(others)}.")
    return said


def _faster(outcome: Outcome) -> str:
    if math.isinf(outcome.gain):
        return f"at {outcome.speed:.4g} instead of not at all"
    return f"{percent(outcome.gain)} faster"


def _outcome(outcome: Outcome) -> str:
    said = f"{_faster(outcome)} {outcome.change.what}"
    if outcome.change.assumed:
        said += f" ({outcome.change.assumed})"
    if outcome.others < -1e-6:
        said += f"; somebody else would lose {percent(-outcome.others)}"
    if outcome.marginal is not None:
        said += f"; the prices foretell {percent(outcome.marginal)}"
        said += "" if outcome.linear else ", which holds for small changes only"
    return said + "."
