"""Environment variables of a gang's members."""

import re
import socket
from collections.abc import Collection, Iterable, Mapping
from fnmatch import translate
from functools import cache

from fairlead import failpoints
from fairlead.engines.base import LaunchOrder

INHERITED = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "LC_*", "TZ", "TMPDIR"),
    *("LD_LIBRARY_PATH", "CUDA_*", "NVIDIA_*", "NCCL_*", "GLOO_*", "OMP_*", "MKL_*", "KMP_*"),
    *("OPENBLAS_NUM_THREADS", "PYTHONPATH", "PYTHONHOME", "PYTHONHASHSEED", "PYTHONUNBUFFERED"),
    *("PYTHONDONTWRITEBYTECODE", "PYTHONNOUSERSITE", "PYTHONUTF8", "PYTHONIOENCODING"),
    *("VIRTUAL_ENV", "CONDA_PREFIX", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE"),
    *("XDG_CACHE_HOME", "XDG_DATA_DIRS", "HF_HOME", "HF_HUB_CACHE", "TORCH_HOME"),
)
"""variables that jobs inherit from the server; a star stands for any ending"""


def inherited(server: Mapping[str, str], more: Iterable[str] = ()) -> dict[str, str]:
    """Return the variables that a keeper and its job inherit from the server.

    All others stay with the server: they may hold passwords. ``more`` names variables as
    ``INHERITED`` does.
    """
    return select(server, (*INHERITED, *more, failpoints.VARIABLE))


def select(server: Mapping[str, str], patterns: Collection[str]) -> dict[str, str]:
    """Return the variables whose names match a pattern."""
    matches = _any_of(tuple(patterns)).match
    return {name: value for name, value in server.items() if matches(name)}


@cache
def _any_of(patterns: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(map(translate, patterns)))


def member_environment(order: LaunchOrder, index: int) -> dict[str, str]:
    """Return the environment variables of one member of the gang."""
    node = order.devices[index][0]
    on_node = [i for i, (at, _) in enumerate(order.devices) if at == node]
    rank, local_rank = str(order.first_rank + index), str(on_node.index(index))
    world_size = str(order.world_size or len(order.devices))
    environment = {
        "FAIRLEAD_JOB": order.job,
        "FAIRLEAD_LEASE": str(order.lease),
        "FAIRLEAD_RANK": rank,
        "FAIRLEAD_LOCAL_RANK": local_rank,
        "FAIRLEAD_WORLD_SIZE": world_size,
        "FAIRLEAD_ACCELERATOR": order.accelerators[index],
        "FAIRLEAD_NODE": node,
        "FAIRLEAD_DEVICES": ",".join(str(order.devices[i][1]) for i in on_node),
        "FAIRLEAD_CHECKPOINT_DIR": order.checkpoint_dir,
        "RANK": rank,
        "LOCAL_RANK": local_rank,
        "WORLD_SIZE": world_size,
        "PYTHONUNBUFFERED": "1",
    }
    if order.visible:
        environment["CUDA_VISIBLE_DEVICES"] = order.visible[index]
    if order.total_steps is not None:
        environment["FAIRLEAD_STEPS"] = str(order.total_steps)
    return environment


class HeldPorts:
    """Ports of this machine that no other process is given while this object exists.

    A socket that asks for any port gets none that another socket is bound to. One that names the
    port and has SO_REUSEADDR, which PyTorch, Gloo and gRPC set, may listen there nevertheless.
    """

    def __init__(self) -> None:
        self._sockets: list[socket.socket] = []

    def hold(self, host: str = "127.0.0.1") -> int:
        """Return a port that is free and stays so until a member of the gang listens on it."""
        holder = socket.socket()
        self._sockets.append(holder)
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind((host, 0))
        return int(holder.getsockname()[1])

    def close(self) -> None:
        """Release the ports."""
        for holder in self._sockets:
            holder.close()

    def rendezvous(self, order: LaunchOrder) -> Mapping[str, str]:
        """Return the address where the gang's members meet: as ordered, else a local port.

        A gang of one has an address, too: frameworks that see a rank join a process group.
        """
        if order.meets_at:
            host, _, port = order.meets_at.rpartition(":")
            return {"MASTER_ADDR": host, "MASTER_PORT": port}
        return {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(self.hold())}
