"""The compiled form of what every round does, where there is one.

It is built at installation if there is a C compiler, and does the same bit for bit.
``FAIRLEAD_PURE_PYTHON=1`` leaves it aside.
"""

import importlib
import os
from typing import Protocol, cast

from fairlead.model.arrays import FloatArray, IntArray


class CompiledKernels(Protocol):
    """What is compiled; arrays to be filled come last."""

    def solve_small(self, rows: list[list[float]], /) -> list[float] | None:
        """Solve a few equations, each its coefficients and then its right side."""

    def balance(
        self,
        held: FloatArray,
        way: FloatArray,
        basis: list[list[float]],
        capacity: list[float],
        /,
    ) -> tuple[list[float], list[float] | None]:
        """Add up what all ways use; find the level at which that is what there is."""

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

    def reallocated(
        self, tables: FloatArray, share: FloatArray, carry_s: float, new_tables: FloatArray, /
    ) -> None:
        """Begin an account anew with other shares; what was owed is carried along."""

    def credit(
        self,
        slots: IntArray,
        rows: IntArray,
        until: float,
        counted_at: FloatArray,
        kind: IntArray,
        numbers: FloatArray,
        first: int,
        /,
    ) -> None:
        """Add the time held in slots to rows of numbers, in the column of the accelerator."""

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
        chosen: IntArray,
        /,
    ) -> None:
        """Choose who runs: what is free and where each row is are changed."""

    def fill(
        self,
        speed: FloatArray,
        owed: FloatArray,
        gang: IntArray | None,
        free: list[int],
        chosen: IntArray,
        /,
    ) -> None:
        """Choose who uses what is still free, which changes as well."""


def _found() -> CompiledKernels | None:
    if os.environ.get("FAIRLEAD_PURE_PYTHON"):
        return None
    try:
        return cast(CompiledKernels, importlib.import_module("fairlead._compiled"))
    except ImportError:
        return None


compiled = _found()
