"""The compiled form of what every round does, where there is one.

It is built at installation if there is a C compiler, and does the same bit for bit.
``FAIRLEAD_PURE_PYTHON=1`` leaves it aside.
"""

import importlib
import os
from typing import Protocol, cast

from fairlead.model.arrays import FloatArray, IntArray


class Compiled(Protocol):
    """What is compiled; arrays to be filled come last."""

    def forward(
        self,
        job: IntArray,
        tables: FloatArray,
        elapsed_s: float,
        new_job: IntArray,
        new_received: FloatArray,
        new_tables: FloatArray,
        /,
    ) -> None:
        """Bring the tables of an account forward to other jobs and times received."""

    def urgent(
        self,
        tables: FloatArray,
        rows: int,
        round_s: float,
        soon: FloatArray,
        somewhere: float,
        on: IntArray | None,
        stay: float,
        row: IntArray,
        column: IntArray,
        weight: FloatArray,
        /,
    ) -> int:
        """List who may run where and how urgent that is; return how many there are."""

    def assign(
        self,
        row: IntArray,
        column: IntArray,
        weight: FloatArray,
        gang: IntArray | None,
        free: list[int],
        chosen: list[int],
        /,
    ) -> None:
        """Choose who runs: what is free and where each row is are changed."""


def _found() -> Compiled | None:
    if os.environ.get("FAIRLEAD_PURE_PYTHON"):
        return None
    try:
        return cast(Compiled, importlib.import_module("fairlead._compiled"))
    except ImportError:
        return None


compiled = _found()
