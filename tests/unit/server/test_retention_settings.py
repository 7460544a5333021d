"""Settings of retention: ages have a unit, and nothing is removed by default."""

from pathlib import Path

import pytest

from fairlead.live.retention.limits import RetentionLimits
from fairlead.model.errors import FairleadError
from fairlead.server.config.loading import load_settings


def test_ages_and_sizes_become_seconds_and_bytes(tmp_path: Path) -> None:
    flags = {"data": tmp_path, "keep_jobs": "90d", "keep_logs": "12h", "max_logs_gib": 0.5}
    environ = {"FAIRLEAD_KEEP_AUDIT": "30m", "FAIRLEAD_KEEP_CHECKPOINTS": "0s"}
    limits = load_settings(flags, environ).settings.retention
    assert limits == RetentionLimits(
        jobs_s=90 * 86400.0,
        logs_s=12 * 3600.0,
        checkpoints_s=0.0,
        audit_s=1800.0,
        logs_bytes=1 << 29,
    )
    assert limits.period_s == 1.0
    kept = load_settings({"data": tmp_path}, {}).settings.retention
    assert kept.keeps_all
    assert RetentionLimits(jobs_s=90 * 86400.0).period_s == 600.0


@pytest.mark.parametrize("value", ["90", "90 d", "-1d", "1w", "d", "1.5d", "90d\n"])
def test_an_age_without_a_known_unit_is_refused(tmp_path: Path, value: str) -> None:
    with pytest.raises(FairleadError, match=r"--keep-jobs: invalid value .*such as 90d"):
        load_settings({"data": tmp_path, "keep_jobs": value}, {})
