"""The run of this process."""

import atexit
import os

from fairlead.job.run import Run


def attach() -> Run:
    """Return this process's run: under a lease if the scheduler started it, else a plain one.

    A process that the scheduler has started before its lease waits here for it.
    """
    if os.environ.get("FAIRLEAD_SUCCESSOR"):
        from fairlead.job.keeper.successor import wait_for_lease  # noqa: PLC0415  # others need none of it

        wait_for_lease(os.environ)
    lease = os.environ.get("FAIRLEAD_LEASE")
    if os.environ.get("FAIRLEAD_PROFILE"):
        from fairlead.job.profile import attach_profiled  # noqa: PLC0415  # others need none of it

        return attach_profiled(os.environ)
    if not lease:
        return Run()
    # A plain run needs none of these.
    from fairlead.job.keeper.channel import announce  # noqa: PLC0415
    from fairlead.job.leased_run import LeasedRun  # noqa: PLC0415

    announce(os.environ)
    run = LeasedRun(int(os.environ["FAIRLEAD_LEASE"]), os.environ)
    atexit.register(run.note_exit)
    return run
