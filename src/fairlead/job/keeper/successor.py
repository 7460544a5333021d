"""Hand-over: a process that is started before its lease prepares itself and waits for it."""

import sys
from collections.abc import Mapping, MutableMapping
from contextlib import suppress

from fairlead import block_file, failpoints
from fairlead.job.exit_status import EXIT_PREEMPTED
from fairlead.job.keeper.channel import open_channel
from fairlead.job.saving.saver import saved_bytes

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

    nbytes = saved_bytes(environment["FAIRLEAD_CHECKPOINT_DIR"])
    with suppress(Exception):  # the program itself will show a problem
        if "torch" in sys.modules and _warm_up_torch(nbytes):
            return
    with suppress(OSError):  # no memory: the read will show a problem, if it is one
        block_file.reserve(nbytes)


def _warm_up_torch(nbytes: int) -> bool:
    """Load PyTorch's libraries; return whether memory is locked for a checkpoint of this size."""
    import torch  # noqa: PLC0415  # only jobs that use it have it

    from fairlead.job.torch import host_state  # noqa: PLC0415  # as above

    has_device = torch.cuda.is_available()
    parameter = torch.zeros((8, 8), device="cuda" if has_device else "cpu")
    parameter.grad = parameter @ parameter
    torch.optim.Adam([parameter]).step()
    if not has_device or nbytes <= block_file.BLOCK:
        return False
    host_state.reserve(nbytes)
    host_state.reserve_for_read(nbytes)
    return True
