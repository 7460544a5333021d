"""Settings for services to jobs: notifications and code snapshots."""

from dataclasses import dataclass
from typing import Annotated

from fairlead.server.config.option import Option

_PANEL = "Jobs"
_MAX_MIB = 1 << 20


@dataclass(frozen=True, kw_only=True, eq=False, repr=False, init=False)
class JobSettings:
    """URLs that jobs may notify, and sizes of their code snapshots."""

    notify_urls: Annotated[
        str | None,
        Option(
            help="Prefixes of the URLs that jobs may notify (--notify), separated by commas:"
            " https://hooks.example.org/jobs/.",
            expected="URLs separated by commas, such as https://hooks.example.org/jobs/",
            default="none: no notifications",
            min_length=1,
            panel=_PANEL,
        ),
    ] = None
    snapshot_limit_mib: Annotated[
        float,
        Option(
            help="Maximum size of a code snapshot in MiB.",
            expected="MiB, 0 or more",
            flag="--snapshot-limit",
            ge=0,
            le=_MAX_MIB,
            panel=_PANEL,
        ),
    ] = 100.0
    snapshot_quota_mib: Annotated[
        float,
        Option(
            help="Maximum size of all code snapshots of a tenant in MiB.",
            expected="MiB, 0 or more",
            flag="--snapshot-quota",
            ge=0,
            le=_MAX_MIB,
            panel=_PANEL,
        ),
    ] = 1024.0
