"""PyTorch in the job library: exact positions of loaders, tensors as data, gangs.

``run.register`` uses this package by itself once a program has imported PyTorch. Install it with
``pip install 'fairlead[torch]'``.
"""

from fairlead.job.torch.gang import init_process_group
from fairlead.job.torch.global_batches import GlobalBatchSampler
from fairlead.job.torch.host_state import HostState
from fairlead.job.torch.learning_rate import ScaledLearningRate

__all__ = ["GlobalBatchSampler", "HostState", "ScaledLearningRate", "init_process_group"]
