"""A GPU or MIG device of this machine, and the name of its accelerator."""

import re
from dataclasses import dataclass

_BRANDS = ("nvidia", "geforce", "tesla", "quadro", "rtx", "graphics", "device")


@dataclass(frozen=True, slots=True)
class Gpu:
    """One device that a process can use."""

    accelerator: str
    """h200, or h200-3g.71gb for a MIG device of one"""
    uuid: str
    """name for CUDA_VISIBLE_DEVICES"""


def accelerator_name(product: str, mig_profile: str = "") -> str:
    """Return the accelerator of a product: h200 for ``NVIDIA H200``."""
    words = [word for word in re.split(r"[\s_]+", product.lower()) if word not in _BRANDS]
    model = re.sub(r"[^a-z0-9.-]", "", words[0] if words else "gpu") or "gpu"
    return f"{model}-{mig_profile}" if mig_profile else model
