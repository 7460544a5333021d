"""Process group of a gang: a fresh rendezvous in every lease."""

import os
from datetime import timedelta
from typing import Any

import torch
from torch import distributed


def init_process_group(backend: str | None = None, *, timeout: timedelta | None = None) -> None:
    """Join the gang's process group, also as a gang of one and outside the scheduler.

    The engine gives every lease an address of its own. The default backend is ``nccl`` on GPUs,
    else ``gloo``; on GPUs the process selects the device of its local rank.
    """
    has_gpu = torch.cuda.is_available()
    if has_gpu:
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
    options: dict[str, Any] = {} if timeout is None else {"timeout": timeout}
    if "MASTER_ADDR" not in os.environ:
        options |= {"store": distributed.HashStore(), "rank": 0, "world_size": 1}
    distributed.init_process_group(backend or ("nccl" if has_gpu else "gloo"), **options)
