"""Hand-over: a process that is started before its lease prepares itself and waits for it."""

import os
import sys
from collections.abc import Mapping, MutableMapping
from contextlib import suppress

from fairlead import block_file, failpoints
from fairlead.job import checkpoint
from fairlead.job.exit_status import EXIT_PREEMPTED
from fairlead.job.keeper.channel import open_channel
from fairlead.untrusted_file import UnusableFileError

VARIABLE = "FAIRLEAD_SUCCESSOR"
"""environment variable of a process that has no lease yet"""


def wait_for_lease(environment: MutableMapping[str, str]) -> None:
    """Prepare this process, and set the variables of its lease once it has one.

    Exits if it gets none.
    """
    channel = open_channel(environment)
    if channel is None:
        raise SystemExit(EXIT_PREEMPTED)
    warm_up(environment)
    sys.stdout.flush()
    failpoints.point("job.prepare.ready")
    channel.send("ready")
    while not channel.closed:
        for kind, variables in channel.receive():
            if kind == "resume":
                failpoints.point("job.prepare.resumed")
                channel.detach()  # the run opens it again
                environment.update(variables)
                del environment[VARIABLE]
                return
    raise SystemExit(EXIT_PREEMPTED)


def warm_up(environment: Mapping[str, str]) -> None:
    """Load the libraries and take the memory that the first step and the next save would.

    Nothing here draws a random number or differentiates: the first would change the results, the
    second would forbid the program to fork workers that differentiate.
    """
    from fairlead.job import leased_run  # noqa: F401, PLC0415  # imported by every leased run

    nbytes = _state_bytes(environment["FAIRLEAD_CHECKPOINT_DIR"])
    with suppress(OSError):  # no memory: the read will show a problem, if it is one
        block_file.reserve(nbytes)
    if "torch" not in sys.modules:
        return
    with suppress(Exception):  # the program itself will show a problem
        import torch  # noqa: PLC0415  # only jobs that use it have it

        from fairlead.job.torch import host_state  # noqa: PLC0415  # as above

        has_device = torch.cuda.is_available()
        parameter = torch.zeros((8, 8), device="cuda" if has_device else "cpu")
        parameter.grad = parameter @ parameter
        torch.optim.Adam([parameter]).step()
        if has_device and nbytes:
            host_state.reserve(nbytes)


def _state_bytes(directory: str) -> int:
    """Return the size of the committed checkpoint; the next one will be as large."""
    with suppress(OSError, UnusableFileError):
        committed = checkpoint.latest(directory)
        if committed is not None:
            return os.stat(os.path.join(directory, committed.files[0])).st_size
    return 0
