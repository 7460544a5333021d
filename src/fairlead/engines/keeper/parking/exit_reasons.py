"""Reasons for which processes do not stay for their job's next lease, in the words of its log."""

OTHER_DEVICES = "its lease is on other devices than its parked processes"
OTHER_SIZE = "its gang has another size than its parked processes, which cannot follow"
OTHER_ORDER = "its order has changed since its processes were parked"
PARKED_ENDED = "its parked processes have ended"
PARKED_WITH_SERVER = "its parked processes have ended with their server"
NODE_DRAINED = "a node of its parked processes was drained"
COPIES = "its job runs in copies, whose average the next process reads"
CONTAINER = "it runs in a container"
MEMBER_ENDED = "a member of its gang has ended"
MEMBERS_LATE = "not all of its members left in time"
NO_STOP = "its server did not stop it in time"
SERVER_ENDED = "the server that started the process has ended"


def exit_text(reason: str) -> str:
    """Return the line that tells why a switch needs a new process."""
    return f"switch: exit ({reason})"


def too_large(used_gib: float, limit_gib: float) -> str:
    """Return the reason for which processes with so much host memory cannot stay."""
    return f"{used_gib:.2f} GiB of host memory: offload memory: {limit_gib:g} GiB"


def memory_short(limit_gib: float) -> str:
    """Return the reason for which parked processes end to make room for others."""
    return f"parked processes exceeded the offload memory of {limit_gib:g} GiB"
