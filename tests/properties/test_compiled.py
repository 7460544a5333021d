"""The compiled functions give the results of the Python code beside them, bit for bit."""

import os
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as nst
from tests.properties.sim.test_simulation import scenarios

from fairlead.compiled import compiled
from fairlead.core import leases
from fairlead.mechanisms import lottery
from fairlead.mechanisms._rounds import deficits, selection, urgency
from fairlead.mechanisms._rounds.candidates import CandidateEntries
from fairlead.mechanisms._rounds.deficits import Account
from fairlead.mechanisms._rounds.selection import RoundSelection
from fairlead.mechanisms.hadar import dp_allocation
from fairlead.mechanisms.hadar.find_alloc import Bid, DeviceCells, DeviceMarket
from fairlead.mechanisms.hadar.prices import Prices
from fairlead.mechanisms.lottery import Lottery, LotteryMemory
from fairlead.model.allocation import Allocation
from fairlead.model.cluster import Cluster
from fairlead.model.instance import Instance, InstanceJob
from fairlead.model.snapshot import Snapshot, snapshot_of
from fairlead.policies.base import WarmStart, job_allocation
from fairlead.sim.driver import simulate
from fairlead.sim.scenario import Scenario
from fairlead.solve.max_min import small_system, warm_start
from fairlead.solve.options import problem as options_problem
from fairlead.solve.options.problem import OptionProblem

needs_compiled = pytest.mark.skipif(compiled is None, reason="there is no C compiler here")
amounts = st.floats(-2000.0, 2000.0) | st.sampled_from([0.0, -360.0, 360.0, 180.0])


class Pure:
    """Within it, modules do without what is compiled."""

    def __init__(self, *modules: ModuleType) -> None:
        self._modules = modules

    def __enter__(self) -> None:
        for module in self._modules:
            vars(module)["compiled"] = None

    def __exit__(self, *raised: object) -> None:
        for module in self._modules:
            vars(module)["compiled"] = compiled


def test_where_there_is_a_compiler_rounds_are_compiled() -> None:
    headers = Path(sysconfig.get_path("include"), "Python.h")
    could = shutil.which("cc") is not None and headers.exists()
    wanted = could and not os.environ.get("FAIRLEAD_PURE_PYTHON")
    assert (compiled is not None) == wanted


def test_an_operator_may_leave_aside_what_is_compiled() -> None:
    program = "from fairlead.compiled import compiled; print(compiled)"
    environment = {**os.environ, "FAIRLEAD_PURE_PYTHON": "1"}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "None\n"


@st.composite
def _choices(draw: st.DrawFn) -> tuple[CandidateEntries, RoundSelection]:
    rows, columns = draw(st.integers(1, 12)), draw(st.integers(1, 4))
    weight = draw(
        nst.arrays(
            np.float64,
            (rows, columns),
            elements=st.sampled_from([0.0, 3.0, 3.25, 4.5, 7.0]) | st.floats(0.5, 8.0),
        )
    )
    row, column = weight.nonzero()
    gangs = st.integers(1, 3)
    shape = draw(st.sampled_from([None, (rows,), (rows, columns)]))
    gang = None if shape is None else draw(nst.arrays(np.int64, shape, elements=gangs))
    free = draw(st.lists(st.integers(0, 4), min_size=columns, max_size=columns))
    busy = draw(st.lists(st.sampled_from([-1, -1, -2]), min_size=rows, max_size=rows))
    order = draw(st.permutations(range(len(row))))
    row, column = np.array([row, column]).T[list(order)].T  # with gaps between them
    return CandidateEntries(row, column, weight[row, column]), RoundSelection(
        gang, free, np.array(busy)
    )


@needs_compiled
@given(_choices())
def test_the_compiled_choice_is_the_same(case: tuple[CandidateEntries, RoundSelection]) -> None:
    entries, choice = case
    other = replace(choice, free=list(choice.free), wanted=choice.wanted.copy())
    choice.assign(entries)
    with Pure(selection):
        other.assign(entries)
    assert (choice.wanted.tolist(), choice.free) == (other.wanted.tolist(), other.free)


@needs_compiled
@given(_choices(), st.data())
def test_the_compiled_filling_is_the_same(
    case: tuple[CandidateEntries, RoundSelection], data: st.DataObject
) -> None:
    _, choice = case
    other = replace(choice, free=list(choice.free), wanted=choice.wanted.copy())
    shape = len(choice.wanted), len(choice.free)
    speeds = st.sampled_from([0.0, 1.0, 2.0, 3.0]) | st.floats(0.1, 9.0)
    speed = data.draw(nst.arrays(np.float64, shape, elements=speeds))
    owed = data.draw(nst.arrays(np.float64, shape, elements=amounts))
    choice.fill(speed, owed)
    with Pure(selection):
        other.fill(speed, owed)
    assert (choice.wanted.tolist(), choice.free) == (other.wanted.tolist(), other.free)


@needs_compiled
@given(st.lists(st.integers(0, 2), min_size=1, max_size=6), st.integers(1, 9), st.data())
def test_the_compiled_sale_to_jobs_of_one_device_is_the_same(
    cells_of: list[int], width: int, data: st.DataObject
) -> None:
    accelerator = sorted(cells_of)
    capacity = [data.draw(st.integers(1, 3)) for _ in accelerator]
    devices = [tuple(range(10 * cell, 10 * cell + n)) for cell, n in enumerate(capacity)]
    cells = DeviceCells(accelerator, list(range(len(accelerator))), devices)
    # Few different numbers, so that payoffs tie.
    bounds = Prices(np.array([0.5, 0.25, 0.5]), np.array([4.0, 4.0, 8.0]))
    market = DeviceMarket(cells, capacity, bounds, 0.1)
    worth = st.sampled_from([0.0, 1.0, 2.0, 4.0, 8.0]) | st.floats(0.1, 9.0)
    worths = data.draw(st.lists(st.tuples(worth, worth, worth), max_size=12))
    queue = [Bid(row, 1, w, w) for row, w in enumerate(worths)]
    free = [data.draw(st.integers(0, n)) for n in capacity]
    deals = dp_allocation.allocate_queue(market, free, queue, width=width)
    with Pure(dp_allocation):
        assert deals == dp_allocation.allocate_queue(market, free, queue, width=width)


@needs_compiled
@given(
    st.lists(st.tuples(st.integers(1, 4), st.sampled_from([0.5, 1.0, 7.0])), max_size=9),
    st.tuples(st.integers(1, 4), st.integers(1, 4)),
    st.lists(st.integers(0, 8), max_size=20),
    st.integers(0, 9),
)
def test_the_compiled_lottery_is_the_same(
    jobs: list[tuple[int, float]], devices: tuple[int, int], queue: list[int], draws: int
) -> None:
    accelerators = "v100", "k80"
    instance = Instance(
        cluster=Cluster.of(dict(zip(accelerators, devices, strict=True))),
        jobs=tuple(
            InstanceJob(
                id=str(number),
                gang=min(gang, devices[0]),
                weight=weight,
                speeds=dict.fromkeys(accelerators[: 1 + number % 3], 1.0),
            )
            for number, (gang, weight) in enumerate(jobs)
        ),
    )
    snap = snapshot_of(instance)
    memory = LotteryMemory(draws, np.array([n for n in queue if n < len(jobs)], dtype=np.int64))
    plan, after = Lottery(seed=draws).plan(snap, memory)
    with Pure(lottery):
        expected, expected_after = Lottery(seed=draws).plan(snap, memory)
    assert list(plan.start) == list(expected.start)
    assert (after.draws, after.queue.tolist()) == (
        expected_after.draws,
        expected_after.queue.tolist(),
    )


@needs_compiled
@given(st.integers(0, 5), st.data())
def test_compiled_equations_have_the_same_solution(size: int, data: st.DataObject) -> None:
    numbers = st.sampled_from([0.0, 1.0, -1.0]) | st.floats(-9.0, 9.0)
    drawn = data.draw(nst.arrays(np.float64, (size, size + 1), elements=numbers))
    result = small_system.solve_small_system(drawn.tolist())
    with Pure(small_system):
        assert repr(result) == repr(small_system.solve_small_system(drawn.tolist()))


@st.composite
def _tables(draw: st.DrawFn, rows: int, columns: int) -> Any:
    shares_ = st.sampled_from([0.0, 0.0, 0.25, 0.5, 1.0]) | st.floats(1e-12, 1.0)
    share = draw(nst.arrays(np.float64, (1, rows, columns), elements=shares_))
    rest = draw(nst.arrays(np.float64, (3, rows, columns), elements=amounts))
    return np.concatenate([share, rest])


@st.composite
def _rounds(draw: st.DrawFn) -> tuple[Any, Any]:
    rows, columns = draw(st.integers(0, 8)), draw(st.integers(1, 4))
    on = draw(nst.arrays(np.int64, (rows, 2), elements=st.integers(-2, columns - 1)))
    return draw(_tables(rows, columns)), draw(st.sampled_from([None, on[:, 0]]))


@needs_compiled
@given(_rounds(), st.sampled_from([360.0, 1.0, 77.7]))
def test_the_compiled_urgency_is_the_same(case: tuple[Any, Any], round_s: float) -> None:
    tables, on = case
    result = urgency.urgent_entries(tables, round_s, on, 0.5)
    with Pure(urgency):
        expected = urgency.urgent_entries(tables, round_s, on, 0.5)
    for mine, other in zip(result, expected, strict=True):
        assert mine.dtype == other.dtype
        assert mine.tobytes() == other.tobytes()


@st.composite
def _accounts(draw: st.DrawFn) -> tuple[Account, Snapshot]:
    columns, numbers = draw(st.integers(1, 4)), st.sets(st.integers(0, 9), max_size=8)
    before, now = sorted(draw(numbers)), sorted(draw(numbers))
    account = Account.empty()
    if before:
        tables = draw(_tables(len(before), columns))
        account = Account(np.array(before), tables, 100.0, 100.0, 1)
    speeds_by_accelerator = {f"k{j}": 1.0 for j in range(columns)}
    cluster = Cluster.of(dict.fromkeys(speeds_by_accelerator, 2))
    jobs = tuple(InstanceJob(id=str(number), speeds=speeds_by_accelerator) for number in now)
    received = draw(nst.arrays(np.float64, (len(now), columns + 3), elements=amounts))
    return account, replace(
        snapshot_of(Instance(cluster, jobs)),
        job=np.array(now, np.int64),
        received_s=received[:, 3:],
        starts_at=draw(st.sampled_from([100.0, 123.25, 460.0])),
    )


@dataclass(frozen=True)
class _FixedShares:
    """A policy with fixed shares."""

    share: Any

    def allocate(self, snap: Snapshot) -> Allocation:
        return job_allocation(snap, self.share)


@needs_compiled
@given(_accounts())
def test_the_compiled_account_is_the_same(case: tuple[Account, Snapshot]) -> None:
    account, snap = case
    result = account.advanced_to(snap)
    with Pure(deficits):
        expected = account.advanced_to(snap)
    assert result.tables.shape == expected.tables.shape
    assert (result.tables == expected.tables).all()
    assert (result.starts_at, result.changes) == (expected.starts_at, expected.changes)
    policy = _FixedShares(np.where(result.owed_s > 0, 0.5, 0.0))
    result = result.with_new_shares(policy, snap, WarmStart(), carry_s=360.0)
    with Pure(deficits):
        expected = expected.with_new_shares(policy, snap, WarmStart(), carry_s=360.0)
    assert (result.tables == expected.tables).all()


@needs_compiled
@given(st.integers(1, 12), st.data())
def test_compiled_prices_of_options_are_the_same(options: int, data: st.DataObject) -> None:
    def draw(low: float, high: float, length: int = options) -> Any:
        return data.draw(nst.arrays(np.float64, length, elements=st.floats(low, high)))

    def choose(low: int, high: int) -> Any:
        return data.draw(nst.arrays(np.int64, options, elements=st.integers(low, high)))

    classes, width = 4, 2
    second = choose(-1, classes - 1)
    gain_second = np.where(second < 0, 0.0, draw(0.0, 3.0))
    count, capacity = np.full(classes, 2.0), np.ones(width)
    sizes, gains = draw(0.5, 4.0), draw(0.0, 3.0)
    places = choose(0, width - 1), sizes, choose(0, classes - 1), second
    dual, cost = draw(-3.0, 3.0, width + 2 * classes), draw(0.0, 9.0)

    def answers() -> tuple[bytes, bytes]:
        problem = OptionProblem(count, capacity, *places, gains, gain_second, np.zeros(options))
        return problem.priced(dual).tobytes(), problem.least_per_gain(cost).tobytes()

    with Pure(options_problem):
        expected = answers()
    assert answers() == expected


@needs_compiled
@settings(max_examples=40)
@given(scenarios())
def test_whole_simulations_are_the_same(scenario: Scenario) -> None:
    with Pure(deficits, leases, warm_start, selection, urgency, small_system):
        expected, _ = simulate(scenario)
    result, _ = simulate(scenario)
    assert result.finished_at.tobytes() == expected.finished_at.tobytes()
    assert result.migrations.tobytes() == expected.migrations.tobytes()


INTS, FLOATS, OTHERS = np.arange(4), np.arange(4.0), np.arange(4, dtype=np.int32)
WAITS = np.full(4, -1)
BLOCK = np.ones((4, 4, 1))
RANGES, UNSOLD = np.array([0, 1]), np.array([np.inf, 2.0, 1.0])


@needs_compiled
@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("assign", ()),
        ("assign", (INTS, INTS, INTS, None, [1] * 4, WAITS)),
        ("assign", (OTHERS, INTS, FLOATS, None, [1] * 4, WAITS)),
        ("assign", (INTS, INTS, FLOATS, None, [1] * 3, WAITS)),
        ("assign", (INTS, INTS, FLOATS, None, [1] * 4, WAITS[:3])),
        ("assign", (INTS, INTS[:3], FLOATS, None, [1] * 4, WAITS)),
        ("assign", (INTS, INTS, FLOATS, INTS[:3], [1] * 4, WAITS)),
        ("assign", (INTS, INTS, FLOATS, np.ones((4, 2), int), [1] * 4, WAITS)),
        ("assign", (INTS, INTS, FLOATS, None, [1] * 4, INTS + 1)),
        ("assign", (INTS, INTS, FLOATS, None, [1] * 4, [-1] * 4)),
        ("assign", (INTS, INTS, FLOATS, None, ["no"] * 4, WAITS)),
        ("assign", (INTS, INTS, FLOATS, None, (1, 1, 1, 1), WAITS)),
        ("urgent", (FLOATS, 4, 1.0, FLOATS, 1.0, None, 0.0, INTS, INTS, FLOATS)),
        ("urgent", (np.ones(12), -1, 1.0, np.ones(24), 1.0, None, 0.0, INTS, INTS, FLOATS)),
        ("urgent", (np.ones(12), 4, 1.0, np.ones(24), 1.0, INTS[:2], 0.0, INTS, INTS, FLOATS)),
        ("urgent", (np.ones(12), 4, 1.0, np.ones(24), 1.0, None, 0.0, INTS[:2], INTS, FLOATS)),
        ("solve_small", ([[1.0]],)),
        ("solve_small", ([["no", 1.0]],)),
        ("solve_small", (((1.0, 1.0),),)),
        ("balance", (FLOATS, np.ones(8), [[]], [1.0, 1.0])),
        ("balance", (FLOATS, np.ones(8), [[1.0]], [1.0])),
        ("balance", (FLOATS, np.ones(7), [[]], [1.0])),
        ("balance", (FLOATS, np.ones(8), None, [1.0])),
        ("reallocated", (np.ones(16), FLOATS, 1.0, np.ones(15))),
        ("reallocated", (np.ones(15), FLOATS, 1.0, np.ones(16))),
        ("credit", (INTS, INTS, 1.0, FLOATS, INTS, np.ones((4, 4)), 1)),
        ("credit", (INTS, INTS, 1.0, FLOATS, INTS, np.ones((4, 4)), -1)),
        ("credit", (INTS, INTS, 1.0, FLOATS, INTS, np.ones((3, 4)), 0)),
        ("credit", (INTS, INTS, 1.0, FLOATS[:3], INTS[:3], np.ones((4, 4)), 0)),
        ("credit", (INTS, INTS, 1.0, FLOATS, INTS, np.ones(16), 0)),
        ("credit", (INTS, -INTS, 1.0, FLOATS, INTS, np.ones((4, 4)), 0)),
        ("fill", (np.ones(16), np.ones(12), None, [1] * 4, WAITS)),
        ("fill", (np.ones(16), np.ones(16), None, [1] * 4, None)),
        ("forward", (INTS, np.ones(12), 1.0, INTS, np.ones((4, 1)), np.ones(16))),
        ("forward", (INTS, np.ones(16), 1.0, INTS, np.ones(4), np.ones(16))),
        ("forward", (INTS, np.ones(16), 1.0, INTS, np.ones((2, 4)).T, np.ones(32))),
        ("forward", (INTS, np.ones(16), 1.0, INTS, np.ones((4, 1)), np.ones(12))),
        ("forward", (INTS, np.ones(16), "no", INTS, np.ones((4, 1)), np.ones(16))),
        ("forward", (INTS, "no", 1.0, INTS, np.ones((4, 1)), np.ones(16))),
        ("sell_singles", (FLOATS, RANGES, UNSOLD, WAITS[:1] + 1, 0, INTS.copy(), FLOATS.copy())),
        ("sell_singles", (FLOATS, RANGES, UNSOLD, WAITS[:1], 2, INTS.copy(), FLOATS.copy())),
        ("sell_singles", (FLOATS, RANGES, FLOATS, WAITS[:1] + 1, 2, INTS.copy(), FLOATS.copy())),
        ("sell_singles", (FLOATS, 2 * RANGES, UNSOLD, INTS[:1], 2, INTS.copy(), FLOATS.copy())),
        ("draw_lottery", (INTS,) * 13),
        ("match_singles", (FLOATS[:3], INTS[:1], 0.0, INTS.copy())),
        ("match_singles", (FLOATS, FLOATS[:1], 0.0, INTS.copy())),
        ("price_options", (np.ones(4), INTS[:3], FLOATS, FLOATS, FLOATS, FLOATS.copy())),
        ("price_options", (np.ones(4), INTS[1:], FLOATS[:1], FLOATS, FLOATS, FLOATS[:1].copy())),
        ("price_options", (np.ones(4), INTS[1:], FLOATS, FLOATS[:2], FLOATS[:2], np.ones(1))),
        ("near_pairs", (WAITS, np.ones(4), FLOATS, FLOATS, FLOATS[:1], FLOATS, 0.0, INTS.copy())),
        ("near_pairs", (INTS, BLOCK, FLOATS, FLOATS, FLOATS[:1], FLOATS[:3], 0.0, INTS.copy())),
        ("near_pairs", (INTS - 4, BLOCK, FLOATS, FLOATS, FLOATS[:1], FLOATS, 0.0, INTS.copy())),
        ("cheapest_gains", (np.ones(4), INTS[:3], FLOATS, FLOATS.copy())),
        ("cheapest_gains", (np.ones(4), -INTS[:3], FLOATS[:1], FLOATS.copy())),
        ("sell_singles", (FLOATS[:3], RANGES, UNSOLD, INTS[:1], 2, INTS.copy(), FLOATS.copy())),
        ("sell_singles", (FLOATS, RANGES, UNSOLD, INTS[:1], 1e300, INTS.copy(), FLOATS.copy())),
    ],
)
def test_what_does_not_fit_is_refused(name: str, arguments: tuple[Any, ...]) -> None:
    with pytest.raises((TypeError, ValueError)):
        getattr(compiled, name)(*arguments)
