"""Named points at which tests kill a process: just before something is persisted, or just after.

A process with ``FAIRLEAD_CRASHES=DIR`` in its environment kills itself at a point if ``DIR`` holds
a file with the point's name. It removes the file first, so every file kills one process, once.
If the file holds a process ID, that process is killed instead, when another one passes the point.
Without the variable, as outside tests, a point does nothing.
"""

import os
import signal
from contextlib import suppress

VARIABLE = "FAIRLEAD_CRASHES"

SERVER = (
    *("server.start.locked", "server.start.rebuilt", "server.start.adopted"),
    *("server.commit.before", "server.commit.inside", "server.commit.after"),
    *("server.commit.performed", "server.state.inside", "server.state.after"),
    *("server.renewal.heard", "server.renewal.answered"),
    *("server.launch.before", "server.launch.ordered", "server.launch.spawned"),
    *("server.stop.told", "server.end.seen", "server.policy.before", "server.policy.after"),
    *("server.park.seen", "server.park.saved", "server.resume.before", "server.resume.ordered"),
    *("server.resume.named", "server.resume.told"),
    *("server.prepare.ordered", "server.prepare.spawned", "server.prepare.seen"),
    "server.growth.requested",
    *("server.merge.closed", "server.merge.committed", "server.merge.removed"),
)
KEEPER = (
    *("keeper.begins", "keeper.fence.raised", "keeper.member.started", "keeper.members.known"),
    *("keeper.exit.before", "keeper.exit.after"),
    *("keeper.park.noted", "keeper.park.frozen", "keeper.park.saved"),
    *("keeper.resume.locked", "keeper.resume.known", "keeper.resume.told"),
    "keeper.resize.done",
    *("keeper.resume.ends", "keeper.resume.ended"),
    *("keeper.prepare.begins", "keeper.prepare.ready", "keeper.prepare.noted"),
    *("keeper.growth.started", "keeper.growth.ready", "keeper.growth.admitted"),
)
JOB = (
    *("job.restored", "job.renewal.before", "job.renewal.after", "job.leaves"),
    *("job.checkpoint.before", "job.checkpoint.written", "job.commit.locked"),
    *("job.commit.aside", "job.commit.replaced", "job.commit.after"),
    *("job.park.allowed", "job.park.released", "job.park.saved", "job.park.resumed"),
    "job.park.joined",
    *("job.prepare.ready", "job.prepare.resumed"),
    *("job.spare.made", "job.spare.taken", "job.spare.written", "job.spare.named"),
)
POINTS = (*SERVER, *KEEPER, *JOB)

_directory = os.environ.get(VARIABLE)


def point(name: str) -> None:
    """Kill this process if a test requests it here."""
    if _directory is not None:
        _exit_if_requested(name)


def _exit_if_requested(name: str) -> None:
    assert _directory is not None
    assert name in POINTS, name
    path = os.path.join(_directory, name)
    try:
        with open(path, encoding="ascii") as file:
            victim = file.read()
        os.unlink(path)
    except FileNotFoundError:
        return
    with suppress(ProcessLookupError):  # another process may have ended by itself
        os.kill(int(victim or os.getpid()), signal.SIGKILL)
