"""Data sheets of accelerators, and the names under which they are found."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar


@dataclass(frozen=True, slots=True)
class DataSheet:
    """Figures of one device as its vendor states them."""

    fp32_tflops: float
    matrix_tflops: float
    """half-precision operations, on matrix units where it has them; at least ``fp32_tflops``"""
    memory_gib: float
    memory_gb_s: float
    link_gb_s: float
    """to other devices of its node, both directions together"""
    pcie: int
    """generation of its bus"""
    year: int
    """year of its release"""
    source: str = ""

    @property
    def features(self) -> tuple[float, float, float]:
        """Binary logarithms of single-precision and matrix operations and of memory bandwidth."""
        return (
            math.log2(self.fp32_tflops),
            math.log2(self.matrix_tflops),
            math.log2(self.memory_gb_s),
        )


_VENDORS = frozenset({"nvidia", "amd", "tesla", "geforce", "instinct", "radeon"})
_FORM = re.compile(r"sxm\d?|nvl|pcie|hbm\d?e?")
_MEMORY = re.compile(r"\d+g(i?b)?")


T = TypeVar("T")


def find_sheet(name: str, sheets: Mapping[str, T]) -> T | None:
    """Return the entry of an accelerator among data sheets or their figures; None: it has none.

    Ignores case, vendors and, where there is no sheet of that very form, form factor and memory
    size: ``NVIDIA-A100-SXM4-80GB`` is an ``a100-80gb``, ``NVIDIA H100 80GB`` an ``h100``.
    """
    words = [word for word in re.split(r"[\s_-]+", name.lower()) if word not in _VENDORS]
    plain = [word for word in words if not _FORM.fullmatch(word)]
    least = [word for word in plain if not _MEMORY.fullmatch(word)]
    matches = (sheets.get("-".join(label)) for label in (words, plain, least))
    return next((sheet for sheet in matches if sheet is not None), None)
