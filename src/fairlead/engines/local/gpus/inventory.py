"""The GPUs of this machine: whole GPUs and MIG devices, each with its accelerator."""

from fairlead.engines.local.gpus.gpu import Gpu
from fairlead.engines.local.gpus.nvidia_smi import list_gpus
from fairlead.engines.local.gpus.nvml import NvmlReader, open_nvml


def find_gpus() -> tuple[tuple[Gpu, ...], NvmlReader | None]:
    """Return the GPUs that the driver lists, and the reader of their condition.

    Without NVML the list comes from ``nvidia-smi``, and there is no reader.
    """
    reader = open_nvml()
    if reader is None:
        return list_gpus(), None
    return reader.gpus(), reader
