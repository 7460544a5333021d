"""The GPUs of this machine: whole GPUs and MIG devices, each with its accelerator."""

import re
import shutil
import subprocess
from dataclasses import dataclass

_GPU = re.compile(r"^GPU \d+: (?P<name>.+) \(UUID: (?P<uuid>GPU-[^)]+)\)")
_MIG = re.compile(r"^\s+MIG (?P<profile>\S+)\s+Device\s+\d+: \(UUID: (?P<uuid>MIG-[^)]+)\)")
_BRANDS = ("nvidia", "geforce", "tesla", "quadro", "rtx", "graphics", "device")


@dataclass(frozen=True, slots=True)
class Gpu:
    """One device that a process can use."""

    accelerator: str
    """h200, or h200-3g.71gb for a MIG device of one"""
    uuid: str
    """name for CUDA_VISIBLE_DEVICES"""


def find_gpus() -> tuple[Gpu, ...]:
    """Return the devices that the driver lists, none without a driver."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return ()
    result = subprocess.run([tool, "-L"], capture_output=True, text=True, check=False, timeout=30)
    return parse_list(result.stdout) if result.returncode == 0 else ()


def parse_list(text: str) -> tuple[Gpu, ...]:
    """Return the devices of ``nvidia-smi -L``; a GPU with MIG devices is not listed itself."""
    gpus: list[Gpu] = []
    model, whole = "", False
    for line in text.splitlines():
        gpu = _GPU.match(line)
        if gpu:
            model, whole = _short(gpu["name"]), True
            gpus.append(Gpu(model, gpu["uuid"]))
            continue
        mig = _MIG.match(line)
        if mig:
            if whole:
                gpus.pop()
                whole = False
            gpus.append(Gpu(f"{model}-{mig['profile']}", mig["uuid"]))
    return tuple(gpus)


def _short(name: str) -> str:
    """Return the short name of a model: h200 for ``NVIDIA H200``."""
    words = [word for word in re.split(r"[\s_]+", name.lower()) if word not in _BRANDS]
    return re.sub(r"[^a-z0-9.-]", "", words[0] if words else "gpu") or "gpu"
