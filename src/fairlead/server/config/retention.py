"""Settings for the retention of ended jobs, their files, and the audit trail."""

import re
from dataclasses import dataclass
from typing import Annotated

from fairlead.server.config.option import Option

_PANEL = "Retention"
_AGE = r"^\d{1,9}[smhd]$"
_EXPECTED_AGE = "a time with its unit (s, m, h or d), such as 90d"
_EXPECTED_SIZE = "GiB, 0 or more"
_UNIT_S = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


@dataclass(frozen=True, kw_only=True, eq=False, repr=False, init=False)
class RetentionSettings:
    """Ages and sizes up to which the server keeps ended jobs, files and audit entries."""

    keep_jobs: Annotated[
        str | None,
        Option(
            help="Time to keep a job after its end, with its results, logs and checkpoints: 90d.",
            expected=_EXPECTED_AGE,
            default="for ever",
            pattern=_AGE,
            panel=_PANEL,
        ),
    ] = None
    keep_logs: Annotated[
        str | None,
        Option(
            help="Time to keep the logs of a job after its end.",
            expected=_EXPECTED_AGE,
            default="as long as the job",
            pattern=_AGE,
            panel=_PANEL,
        ),
    ] = None
    keep_checkpoints: Annotated[
        str | None,
        Option(
            help="Time to keep the checkpoints of a job after its end.",
            expected=_EXPECTED_AGE,
            default="as long as the job",
            pattern=_AGE,
            panel=_PANEL,
        ),
    ] = None
    keep_audit: Annotated[
        str | None,
        Option(
            help="Time to keep entries of the audit trail.",
            expected=_EXPECTED_AGE,
            default="for ever",
            pattern=_AGE,
            panel=_PANEL,
        ),
    ] = None
    max_logs_gib: Annotated[
        float | None,
        Option(
            help="Maximum size of the logs of all ended jobs in GiB; the oldest are removed.",
            expected=_EXPECTED_SIZE,
            default="no limit",
            ge=0,
            le=1e12,
            panel=_PANEL,
        ),
    ] = None
    max_checkpoints_gib: Annotated[
        float | None,
        Option(
            help="Maximum size of the checkpoints of all ended jobs in GiB; the oldest are"
            " removed.",
            expected=_EXPECTED_SIZE,
            default="no limit",
            ge=0,
            le=1e12,
            panel=_PANEL,
        ),
    ] = None


def seconds_of(age: str | None) -> float | None:
    """Return the seconds of a time such as ``90d``; None for none."""
    if age is None:
        return None
    assert re.fullmatch(_AGE, age), age  # the loader has checked it
    return int(age[:-1]) * _UNIT_S[age[-1]]
