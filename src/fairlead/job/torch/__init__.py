"""PyTorch in the job library: exact positions of loaders, tensors as data, gangs.

``run.register`` uses this package by itself once a program has imported PyTorch. Install it with
``pip install 'fairlead[torch]'``.
"""

from fairlead.job.torch.gang import init_process_group
from fairlead.job.torch.host_state import HostState

__all__ = ["HostState", "init_process_group"]
