"""Process group of a gang: a fresh rendezvous in every lease, also for processes that stay.

A process that stays leaves its group with one lease and joins another under the next. A
DistributedDataParallel keeps its parameters and is bound to the new group as if it had been
pickled and loaded: PyTorch makes its reducer again, without a collective operation.
"""

import os
import sys
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

from fairlead.job.keeper.channel import JOINS, RENDEZVOUS
from fairlead.job.torch.device_memory import instances_of

joined: dict[str, Any] = {}
"""arguments of the last ``init_process_group``; empty before the first"""
_OF_GROUP = ("process_group", "reducer", "logger")
"""attributes of a DistributedDataParallel that hold its group, and memory of the device"""


def init_process_group(backend: str | None = None, *, timeout: timedelta | None = None) -> None:
    """Join the gang's process group, also as a gang of one and outside the scheduler.

    The engine gives every lease an address of its own. The default backend is ``nccl`` on GPUs,
    else ``gloo``; on GPUs the process selects the device of its local rank. A process that is new
    in a gang whose other members have stayed is alone in its group until its first step.
    """
    has_gpu = torch.cuda.is_available()
    if has_gpu:
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
    options: dict[str, Any] = {} if timeout is None else {"timeout": timeout}
    if os.environ.get("WORLD_SIZE", "1") == "1" or JOINS in os.environ:
        options |= {"store": distributed.HashStore(), "rank": 0, "world_size": 1}
    distributed.init_process_group(backend or ("nccl" if has_gpu else "gloo"), **options)
    joined.update(backend=backend, timeout=timeout)


class Regrouping:
    """A process's membership in the groups of its leases."""

    def __init__(self) -> None:
        self._models: list[tuple[Any, dict[str, Any]]] = []
        """models without a group → their other attributes"""
        self._has_left = False

    def obstacle(self) -> str:
        """Return the reason for which this process cannot change its group; empty without one."""
        if not _has_group():
            return ""
        if not joined:
            return "its process group is not that of fairlead.job.torch.init_process_group"
        if len(distributed.distributed_c10d._world.pg_map) > 1:
            return "it has several process groups"
        if any(True for _ in instances_of(*_sharding_classes())):
            return "its model is sharded"
        if not all(map(_can_be_bound_again, instances_of(DistributedDataParallel))):
            return "its DistributedDataParallel has communication of its own"
        return ""

    def leave(self) -> None:
        """Leave the group, once all members have made their last step."""
        if not _has_group():
            return
        for model in list(instances_of(DistributedDataParallel)):
            self._models.append((model, model.__getstate__()))
            for name in _OF_GROUP:
                model.__dict__.pop(name)
        distributed.destroy_process_group()
        self._has_left = True

    def join(self, environment: Mapping[str, str]) -> None:
        """Join the group of the next lease, which its variables describe."""
        if not self._has_left:
            return
        for name in RENDEZVOUS:
            os.environ.pop(name, None)
            if name in environment:
                os.environ[name] = environment[name]
        init_process_group(**joined)
        models, self._models = self._models, []
        for model, attributes in models:
            model.__setstate__(attributes)
        self._has_left = False


def _has_group() -> bool:
    return bool(distributed.is_available() and distributed.is_initialized())


def _can_be_bound_again(model: Any) -> bool:
    """Return whether a DistributedDataParallel uses the gang's group, and that only by itself."""
    own = ("_comm_hooks", "mixed_precision", "_delay_all_reduce_params", "_use_python_reducer")
    has_own = any(getattr(model, name, None) for name in own)
    return getattr(model, "process_group", None) is distributed.group.WORLD and not has_own


def _sharding_classes() -> list[type]:
    """Return the classes whose instances show that tensors are divided among the ranks."""
    places = {
        "torch.distributed.device_mesh": "DeviceMesh",
        "torch.distributed.fsdp": "FullyShardedDataParallel",
    }
    classes = (getattr(sys.modules.get(module), name, None) for module, name in places.items())
    return [one for one in classes if isinstance(one, type)]
