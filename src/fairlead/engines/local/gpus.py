"""The GPUs of this machine: whole ones and MIG devices, each an accelerator of its own kind."""

import re
import shutil
import subprocess
from dataclasses import dataclass

_GPU = re.compile(r"^GPU \d+: (?P<name>.+) \(UUID: (?P<uuid>GPU-[^)]+)\)")
_MIG = re.compile(r"^\s+MIG (?P<profile>\S+)\s+Device\s+\d+: \(UUID: (?P<uuid>MIG-[^)]+)\)")
_BRANDS = ("nvidia", "geforce", "tesla", "quadro", "rtx", "graphics", "device")


@dataclass(frozen=True, slots=True)
class Gpu:
    """One device that a process can be given."""

    accelerator: str
    """h200, or h200-3g.71gb for a part of one"""
    uuid: str
    """what CUDA_VISIBLE_DEVICES calls it"""


def find_gpus() -> tuple[Gpu, ...]:
    """Return the devices that the driver lists, none where there is no driver."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return ()
    said = subprocess.run([tool, "-L"], capture_output=True, text=True, check=False, timeout=30)
    return parse_list(said.stdout) if said.returncode == 0 else ()


def parse_list(text: str) -> tuple[Gpu, ...]:
    """Return the devices of ``nvidia-smi -L``; a GPU cut into MIG devices is not one itself."""
    found: list[Gpu] = []
    model, whole = "", False
    for line in text.splitlines():
        gpu = _GPU.match(line)
        if gpu:
            model, whole = _short(gpu["name"]), True
            found.append(Gpu(model, gpu["uuid"]))
            continue
        mig = _MIG.match(line)
        if mig:
            if whole:
                found.pop()
                whole = False
            found.append(Gpu(f"{model}-{mig['profile']}", mig["uuid"]))
    return tuple(found)


def _short(name: str) -> str:
    """Return a model's name as people write it: ``NVIDIA H200`` is h200."""
    words = [word for word in re.split(r"[\s_]+", name.lower()) if word not in _BRANDS]
    return re.sub(r"[^a-z0-9.-]", "", words[0] if words else "gpu") or "gpu"
