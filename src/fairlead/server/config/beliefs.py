"""Speeds that settings name: those that decisions start from, and those of emulated devices."""

from dataclasses import replace

from fairlead.data import DEFAULT_SPEEDS
from fairlead.files.speeds.prior import prior_speeds
from fairlead.model.errors import InputError
from fairlead.model.speeds.planned import Trials
from fairlead.model.speeds.table import SpeedTable
from fairlead.server.config.settings import ServeSettings


def believed_speeds(settings: ServeSettings) -> SpeedTable:
    """Return the speeds that decisions start from; raise InputError if they state no doubt.

    ``plan_on`` and ``explore`` each weigh that doubt, so that they exclude each other.
    """
    speeds = prior_speeds(settings.speeds or DEFAULT_SPEEDS)
    if settings.plan_on != 0.5 and speeds.learner is None:
        fix = "expected speeds = guess or a table, or no such setting"
        raise InputError("speeds = none states no doubt", fix=fix, field="plan_on")
    if settings.explore and (speeds.learner is None or settings.plan_on != 0.5):
        fix = "expected speeds = guess or a table, and no plan_on, or no such setting"
        raise InputError("weighs trials by the doubt of estimates", fix=fix, field="explore")
    trials = Trials() if settings.explore else None
    return replace(speeds, quantile=settings.plan_on, trials=trials)


def hidden_speeds(settings: ServeSettings, *, emulated: bool) -> SpeedTable | None:
    """Return the true speeds of emulated devices, None if they are those that are believed.

    Raises InputError if the devices are real: these have their own.
    """
    if settings.emulated_speeds is None:
        return None
    if not emulated:
        fix = "expected emulated devices, such as --emulate v100=2, or no such setting"
        raise InputError("the devices are real", fix=fix, field="emulated_speeds")
    return prior_speeds(settings.emulated_speeds)
