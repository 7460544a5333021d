"""An audit in words: each figure with who and what shows it."""

from fairlead.insight.audit.audit import Audit
from fairlead.insight.audit.misreport import Misreport
from fairlead.sim.report.summary import listed

_SHOWN = 3


def percent(value: float) -> str:
    """Return a fraction in per cent, with as many digits as tell it from 0."""
    if abs(value) < 1e-9:
        return "0 %"
    if abs(value) >= 1e4:
        return "> 10⁶ %"  # from next to nothing
    return f"{100 * value:.1f} %" if abs(value) >= 0.01 else f"{100 * value:.2g} %"


def witness(audit: Audit, figure: str) -> str:
    """Return what shows a figure of an audit, in one clause."""
    return {
        "pareto_slack": _slack,
        "envy": _envy,
        "sharing_incentive": _incentive,
        "over_report": lambda a: _lie(a, a.lies.over if a.lies else None),
        "under_report": lambda a: _lie(a, a.lies.under if a.lies else None),
        "efficiency": _efficiency,
    }[figure](audit)


def _slack(audit: Audit) -> str:
    if audit.slack.use is None:
        return "packed jobs run faster than any allocation that is compared here"
    if not audit.slack.slack:
        return "nobody can gain without harm to another"
    gains = sorted(
        ((gain, name) for gain, name in zip(audit.slack.gain, audit.parties.names, strict=True)),
        key=lambda pair: (-pair[0], pair[1]),
    )
    some = [
        f"{name} could have {_number(gain)} more"
        for gain, name in gains[:_SHOWN]
        if gain > 1e-3 * gains[0][0]
    ]
    return f"{listed(some)} without harm to anybody"


def _envy(audit: Audit) -> str:
    envy, names = audit.envy, audit.parties.names
    if envy.who < 0:
        return "there is nobody to envy"
    if envy.worst <= 1e-9:
        return "nobody would rather have another's devices"
    return (
        f"{names[envy.who]} would go {percent(envy.worst)} faster with the devices of"
        f" {names[envy.whom]}"
    )


def _incentive(audit: Audit) -> str:
    who = audit.parties.names[audit.incentive.who]
    worst = audit.incentive.worst
    if worst <= 1e-9:
        return f"an equal split would give nobody more; it comes closest to it for {who}"
    return f"{who} would go {percent(worst)} faster with an equal split"


def _lie(audit: Audit, lie: Misreport | None) -> str:
    if lie is None:
        return "no lie was found that gains anything"
    told = audit.reported(lie)
    speed, ids = audit.court.snap.speed, audit.court.snap.ids
    row = {ids[int(number)]: i for i, number in enumerate(audit.court.snap.job)}
    kinds = list(audit.court.snap.cluster.accelerators)
    job, speeds = next(iter(told.items()))
    parts = [
        f"{reported:.9g} instead of {_number(speed[row[job], kinds.index(kind)])} on {kind}"
        for kind, reported in speeds.items()
    ]
    all_jobs = "" if len(told) == 1 else f" for {job}, and alike for its other jobs"
    who = audit.parties.names[lie.who]
    return f"{who} goes {percent(lie.gain)} faster by reporting {listed(parts)}{all_jobs}"


def _efficiency(audit: Audit) -> str:
    return f"total speed is {percent(audit.efficiency)} of what it would be if only that counted"


def _number(value: float) -> str:
    return f"{value:.4g}"
