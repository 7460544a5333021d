"""The compiled inner loops of a round, if they were built.

They are built at installation if there is a C compiler, with the same results bit for bit.
``FAIRLEAD_PURE_PYTHON=1`` disables them.
"""

import importlib
import os
from typing import Protocol, cast

from fairlead.model.arrays import FloatArray, IntArray


class CompiledKernels(Protocol):
    """The compiled functions; arrays to be filled come last."""

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
        """Add up the use by all ways; find the level at which it equals the capacity."""

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
        """Restart an account with other shares; debts are carried over."""

    def credit(
        self,
        slots: IntArray,
        rows: IntArray,
        until: float,
        counted_at: FloatArray,
        accelerator: IntArray,
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
        """List the entries that may run and their urgency; return their number."""

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
        """Select the entries that run; updates the free devices and each row's column."""

    def fill(
        self,
        speed: FloatArray,
        owed: FloatArray,
        gang: IntArray | None,
        free: list[int],
        chosen: IntArray,
        /,
    ) -> None:
        """Select rows for the devices that are still free; updates both."""

    def sell_singles(
        self,
        worth: FloatArray,
        ranges: IntArray,
        prices: FloatArray,
        free: IntArray,
        width: int,
        sold: IntArray,
        cost: FloatArray,
        /,
    ) -> None:
        """Sell devices to jobs of one device each; note the cell, -1 for none, and its cost."""

    def price_options(
        self,
        use: FloatArray,
        place: IntArray,
        price: FloatArray,
        level: FloatArray,
        time: FloatArray,
        worth: FloatArray,
        /,
    ) -> None:
        """Add up what the prices of devices, levels and time say that options are worth."""

    def cheapest_gains(
        self, use: FloatArray, place: IntArray, cost: FloatArray, least: FloatArray, /
    ) -> None:
        """Lower classes' least cost of a gain of 1 to that of their options."""

    def draw_lottery(
        self,
        gang: IntArray,
        preferred: IntArray,
        smallest: IntArray,
        usable: IntArray,
        room: IntArray,
        time: FloatArray,
        odds: FloatArray,
        always: IntArray,
        capacity: IntArray,
        queue: IntArray,
        state: IntArray,
        wanted: IntArray,
        wins: IntArray,
        /,
    ) -> None:
        """Draw the winners of a quantum and list the wins that wait.

        ``state`` is the number of draws so far, the start of the generator and the number of wins.
        """

    def match_singles(
        self, value: FloatArray, capacity: IntArray, margin: float, chosen: IntArray, /
    ) -> bool:
        """Choose a column for each row, -1 for none; return whether all else is worth less."""

    def choose_pairs(
        self,
        table: FloatArray,
        ends: FloatArray,
        state: IntArray,
        level: FloatArray,
        prices: FloatArray,
        tie_prices: FloatArray,
        among: IntArray,
        /,
    ) -> None:
        """Give some classes their cheapest pairs of columns."""

    def stage_use(
        self,
        table: FloatArray,
        ends: FloatArray,
        state: IntArray,
        level: FloatArray,
        prices: FloatArray,
        tie_prices: FloatArray,
        held: FloatArray,
        rate: FloatArray,
        again: bool,
        /,
    ) -> tuple[list[float], list[float]]:
        """Add up the devices that classes use of each column, and more of them per theta."""

    def tied_columns(
        self,
        table: FloatArray,
        ends: FloatArray,
        state: IntArray,
        level: FloatArray,
        prices: FloatArray,
        tie_prices: FloatArray,
        most: float,
        above: float,
        /,
    ) -> list[int]:
        """List the places of columns that cost little more than the class's pair."""

    def next_marginal(
        self,
        table: FloatArray,
        ends: FloatArray,
        state: IntArray,
        level: FloatArray,
        prices: FloatArray,
        tie_prices: FloatArray,
        direction: FloatArray,
        marginal: list[int],
        until: float,
        /,
    ) -> tuple[float, int, float]:
        """Find the column to which a class is indifferent first, -1 for none, and when."""

    def near_pairs(
        self,
        name: IntArray,
        block: FloatArray,
        alone: FloatArray,
        value: FloatArray,
        price: FloatArray,
        time_price: FloatArray,
        limit: float,
        code: IntArray,
        /,
    ) -> int:
        """Find the pairs whose cost exceeds their value by ``limit`` at most; return their number.

        As many as it has room for are written into the last one.
        """

    def assign_units(
        self,
        unit: IntArray,
        column: IntArray,
        weight: FloatArray,
        members: IntArray,
        free: list[int],
        unit_of: IntArray,
        entry_of: IntArray,
        /,
    ) -> None:
        """Select the units of single devices that run; updates the last three."""

    def pass_ranks(self, passes: FloatArray, decimals: int, ranks: FloatArray, /) -> bool:
        """Rank passes by their rounded values; return False if they are too large."""

    def device_turns(
        self,
        order: IntArray,
        home: IntArray,
        job: IntArray | None,
        begin: IntArray,
        devices: IntArray,
        sites: IntArray | None,
        device: IntArray,
        moves: IntArray,
        /,
    ) -> tuple[int, int]:
        """Let rows take turns on the devices of their homes; return how many stop and start."""

    def served_tickets(
        self,
        row: IntArray,
        site: IntArray,
        devices: IntArray,
        gang: IntArray,
        tenant: IntArray,
        size: IntArray,
        tickets: FloatArray,
        due: FloatArray,
        served: FloatArray,
        /,
    ) -> None:
        """Divide the devices of sites among claims; note how many tickets each row is served."""

    def migration_gains(
        self,
        accelerator: IntArray,
        profile_of: IntArray,
        profile: IntArray,
        source: IntArray,
        tenant: IntArray,
        gang: IntArray,
        seen: IntArray,
        capacity: IntArray,
        speed: FloatArray,
        due: FloatArray,
        demand: FloatArray,
        there: FloatArray,
        entitled: FloatArray,
        gains: FloatArray,
        /,
    ) -> None:
        """Note what a job of each group would gain on each accelerator."""

    def fork_copies(
        self,
        terms: FloatArray,
        speed: FloatArray,
        gang: IntArray,
        most: IntArray,
        accelerator: IntArray,
        free: IntArray,
        may: IntArray,
        so_far: FloatArray,
        utility: FloatArray,
        added: IntArray,
        /,
    ) -> int:
        """Add copies of jobs, the one worth most first; return how many, as (row, cell) pairs.

        The last five change.
        """

    def slice_rounds(self, *arrays: FloatArray | IntArray | None) -> int:
        """Take slices in which rows take turns; return how many. All but the places change.

        The arrays are those of a ``TurnRun``, then facts, trials, units and thresholds.
        """

    def quantum_rounds(self, *arrays: FloatArray | IntArray | None) -> int:
        """Take quanta in which rows take turns; return how many. All but the places change.

        The arrays are those of a ``TurnRun``, then passes, the time received, the tables and
        numbers of tenants, the accelerators that rows have seen, and the rule for debts.
        """


def _load() -> CompiledKernels | None:
    if os.environ.get("FAIRLEAD_PURE_PYTHON"):
        return None
    try:
        module = importlib.import_module("fairlead._compiled")
    except ImportError:
        return None
    names = [name for name in vars(CompiledKernels) if not name.startswith("_")]
    # A module of an earlier version, which was not built again, is of no use.
    return cast(CompiledKernels, module) if all(hasattr(module, name) for name in names) else None


compiled = _load()
