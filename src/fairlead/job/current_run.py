"""The run of this process."""

import os

from fairlead.job.run import Run


def attach() -> Run:
    """Return this process's run: under a lease if the scheduler started it, else a plain one."""
    lease = os.environ.get("FAIRLEAD_LEASE")
    if not lease:
        return Run()
    from fairlead.job.leased_run import LeasedRun  # noqa: PLC0415  # a plain run needs none of it

    return LeasedRun(int(lease), os.environ)
