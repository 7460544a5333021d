"""Speed tables completed by data sheets: beliefs at the start, and speeds of simulated devices."""

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from fairlead.files.bundled import data_sheets
from fairlead.files.speeds.table import read_speeds
from fairlead.model.speeds.estimates import DEFAULT_SPEED
from fairlead.model.speeds.table import SpeedTable

if TYPE_CHECKING:
    from fairlead.estimate.learned import DataSheetLearner

NO_SPEEDS, GUESSED_SPEEDS = "none", "guess"
"""prior beliefs without a table: all accelerators are equal, or as their data sheets say"""


def prior_speeds(name: str) -> SpeedTable:
    """Return the beliefs that ``none``, ``guess`` or a speed table stands for.

    A job runs at once even if the table lacks its workload: its speed is estimated until it has
    been measured.
    """
    if name == NO_SPEEDS:
        return SpeedTable({}, assumed=DEFAULT_SPEED)
    table = SpeedTable({}) if name == GUESSED_SPEEDS else read_speeds(name)
    return replace(table, assumed=DEFAULT_SPEED, learner=_learner())


def _learner() -> "DataSheetLearner":
    from fairlead.estimate.learned import DataSheetLearner  # noqa: PLC0415  # few runs estimate

    return DataSheetLearner.of(data_sheets())


def simulated_speeds(name: str, accelerators: Iterable[str]) -> SpeedTable:
    """Return a speed table at which simulated jobs run on these accelerators.

    Speeds on those that the table lacks are estimated: from data sheets where all of these
    accelerators have one, otherwise as means.
    """
    table = read_speeds(name)
    lacking = table.lacking(accelerators)
    if not lacking:
        return table
    learner = _learner()
    if all(map(learner.knows, (*lacking, *table.accelerators))):
        return replace(table, learner=learner)
    return table
