"""The list of GPUs that ``nvidia-smi`` prints, for machines without NVML's Python package."""

import re
import shutil
import subprocess

from fairlead.engines.local.gpus.gpu import Gpu, accelerator_name

_GPU = re.compile(r"^GPU \d+: (?P<name>.+) \(UUID: (?P<uuid>GPU-[^)]+)\)")
_MIG = re.compile(r"^\s+MIG (?P<profile>\S+)\s+Device\s+\d+: \(UUID: (?P<uuid>MIG-[^)]+)\)")


def list_gpus() -> tuple[Gpu, ...]:
    """Return the devices that the driver lists, none without a driver."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return ()
    result = subprocess.run([tool, "-L"], capture_output=True, text=True, check=False, timeout=30)
    return parse_list(result.stdout) if result.returncode == 0 else ()


def parse_list(text: str) -> tuple[Gpu, ...]:
    """Return the devices of ``nvidia-smi -L``; a GPU with MIG devices is not listed itself."""
    gpus: list[Gpu] = []
    product, whole = "", False
    for line in text.splitlines():
        gpu = _GPU.match(line)
        if gpu:
            product, whole = gpu["name"], True
            gpus.append(Gpu(accelerator_name(product), gpu["uuid"]))
            continue
        mig = _MIG.match(line)
        if mig:
            if whole:
                gpus.pop()
                whole = False
            gpus.append(Gpu(accelerator_name(product, mig["profile"]), mig["uuid"]))
    return tuple(gpus)
