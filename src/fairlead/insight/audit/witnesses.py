"""Witnesses of an audit's figures, as text."""

from fairlead.insight.audit.audit import Audit
from fairlead.insight.audit.misreport import Misreport
from fairlead.sim.report.summary import join_with_and

_SHOWN = 3


def percent(value: float) -> str:
    """Return a fraction in per cent, with enough digits to distinguish it from 0."""
    if abs(value) < 1e-9:
        return "0 %"
    if abs(value) >= 1e4:
        return "> 10⁶ %"  # relative to almost nothing
    return f"{100 * value:.1f} %" if abs(value) >= 0.01 else f"{100 * value:.2g} %"


def witness(audit: Audit, figure: str) -> str:
    """Return the witness of a figure as one clause."""
    return {
        "pareto_slack": _slack,
        "envy": _envy,
        "sharing_incentive": _incentive,
        "over_report": lambda a: _misreport(a, a.misreports.over if a.misreports else None),
        "under_report": lambda a: _misreport(a, a.misreports.under if a.misreports else None),
        "efficiency": _efficiency,
    }[figure](audit)


def _slack(audit: Audit) -> str:
    if audit.slack.use is None:
        return "packed jobs run faster than any unpacked allocation"
    if not audit.slack.slack:
        return "no participant can gain without loss for another"
    gains = sorted(
        (
            (gain, name)
            for gain, name in zip(audit.slack.gain, audit.participants.names, strict=True)
        ),
        key=lambda pair: (-round(pair[0], 9), pair[1]),  # the last bits differ between machines
    )
    some = [
        f"{name} could have {_number(gain)} more"
        for gain, name in gains[:_SHOWN]
        if gain > 1e-3 * gains[0][0]
    ]
    return f"{join_with_and(some)} without loss for any participant"


def _envy(audit: Audit) -> str:
    envy, names = audit.envy, audit.participants.names
    if envy.participant < 0:
        return "only one participant"
    if envy.worst <= 1e-9:
        return "no participant prefers another's devices"
    return (
        f"{names[envy.participant]} would run {percent(envy.worst)} faster with the devices of"
        f" {names[envy.other]}"
    )


def _incentive(audit: Audit) -> str:
    name = audit.participants.names[audit.incentive.participant]
    worst = audit.incentive.worst
    if worst <= 1e-9:
        return f"no participant prefers an equal split; {name} comes closest"
    return f"{name} would run {percent(worst)} faster with an equal split"


def _misreport(audit: Audit, misreport: Misreport | None) -> str:
    if misreport is None:
        return "no profitable misreport found"
    reports = audit.reported(misreport)
    speed, ids = audit.evaluator.snap.speed, audit.evaluator.snap.ids
    row = {ids[int(number)]: i for i, number in enumerate(audit.evaluator.snap.job)}
    accelerators = list(audit.evaluator.snap.cluster.accelerators)
    job, speeds = next(iter(reports.items()))
    parts = [
        f"{reported:.9g} instead of {_number(speed[row[job], accelerators.index(name)])} on {name}"
        for name, reported in speeds.items()
    ]
    all_jobs = "" if len(reports) == 1 else f" for {job}, and likewise for its other jobs"
    liar = audit.participants.names[misreport.participant]
    gain = percent(misreport.gain)
    return f"{liar} runs {gain} faster by reporting {join_with_and(parts)}{all_jobs}"


def _efficiency(audit: Audit) -> str:
    return f"total speed is {percent(audit.efficiency)} of the highest possible total"


def _number(value: float) -> str:
    return f"{value:.4g}"
