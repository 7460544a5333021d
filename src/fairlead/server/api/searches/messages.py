"""Messages about hyperparameter searches: the jobs with the same ``multijob``."""

from pydantic import BaseModel

from fairlead.server.api.job_messages import State


class SearchView(BaseModel):
    """One hyperparameter search."""

    tenant: str
    name: str
    """``multijob`` of its jobs"""
    trials: int
    unended: int
    """trials that have not ended"""
    running: int
    device_hours: float
    submitted_at: float
    """time of the first submission"""
    metrics: list[str]
    """metrics that trials have reported"""


class TrialPoint(BaseModel):
    """A reported value of a metric."""

    at: float
    steps: float
    value: float


class TrialView(BaseModel):
    """One trial of a search."""

    job: str
    name: str
    state: State
    steps_done: float
    total_steps: int | None
    device_hours: float
    start_from: str | None
    """job whose checkpoint it started from"""
    hyperparameters: dict[str, str]
    points: list[TrialPoint]
    """reports of the metric over time, at most 200"""


class SearchTrials(BaseModel):
    """The trials of a search with their learning curves."""

    search: SearchView
    metric: str | None
    """null if no trial has reported one"""
    trials: list[TrialView]
    """the last 500"""
