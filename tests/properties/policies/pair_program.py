"""Random snapshots with pairs, and the linear program over all pairs of their jobs."""

from dataclasses import dataclass, replace

import numpy as np

from fairlead.model.allocation import Allocation
from fairlead.model.cluster import Cluster
from fairlead.model.instance import Instance, InstanceJob, Pair
from fairlead.model.snapshot import Snapshot, snapshot_of
from fairlead.model.speeds.table import SpeedKey, SpeedTable
from fairlead.solve.linear import INFINITY, Columns, LinearProgram, solve_lp

KINDS = ("fast", "slow", "odd")


def random_table(
    rng: np.random.Generator, workloads: int, accelerators: tuple[str, ...]
) -> SpeedTable:
    """Return speeds alone and in pairs: some do not fit, some do not pay, some pay well."""
    names = [f"w{i}" for i in range(workloads)]
    result: dict[SpeedKey, float] = {}
    for gang in (1, 2):
        for accelerator in accelerators:
            alone = {name: float(rng.uniform(1, 10)) for name in names}
            for name in names:
                result[SpeedKey(name, gang, accelerator)] = alone[name]
                result[SpeedKey(name, gang, accelerator, "spread")] = alone[name] * rng.uniform(
                    0.3, 1.1
                )
            for i, a in enumerate(names):
                for b in names[i:]:
                    if rng.random() < 0.3:
                        continue  # not measured: does not fit
                    together = rng.uniform(0.2, 0.95, size=2) * (rng.random() > 0.1)
                    if a == b:
                        together[1] = together[0]
                    result[SpeedKey(a, gang, accelerator, "consolidated", b)] = (
                        alone[a] * together[0]
                    )
                    result[SpeedKey(b, gang, accelerator, "consolidated", a)] = (
                        alone[b] * together[1]
                    )
    return SpeedTable(result)


def random_snapshot(
    seed: int, *, by_job: bool = False, accelerators: int = 2, most: int = 6
) -> Snapshot:
    """Return jobs of few workloads: classes have several and unequal numbers of members."""
    rng = np.random.default_rng(seed)
    names = KINDS[:accelerators]
    table = random_table(rng, 3, names)
    jobs = []
    for i in range(int(rng.integers(2, most + 1))):
        workload, gang = f"w{rng.integers(3)}", int(rng.choice([1, 1, 2]))
        jobs.append(
            InstanceJob(
                id=f"j{i}",
                workload=workload,
                gang=gang,
                weight=float(rng.choice([1.0, 1.0, 2.0])),
                steps_left=float(rng.choice([100.0, 100.0, 400.0])),
                speeds=dict(zip(names, table.row(workload, gang, names), strict=True)),
            )
        )
    cluster = Cluster.of({name: int(rng.integers(2, 4)) for name in names})
    if not by_job:
        return replace(snapshot_of(Instance(cluster, tuple(jobs))), speeds=table)
    pairs = tuple(
        Pair(
            (a.id, b.id),
            {k: tuple((rng.uniform(0.2, 0.95, 2) * (a.speeds[k], b.speeds[k])).tolist())
             for k in names},
        )
        for i, a in enumerate(jobs)
        for b in jobs[i + 1 :]
        if a.gang == b.gang and rng.random() < 0.8
    )  # fmt: skip
    return snapshot_of(Instance(cluster, tuple(jobs), pairs=pairs))


@dataclass(frozen=True)
class PairProgram:
    """Every job alone and every pair of jobs on every accelerator, from the definition."""

    snap: Snapshot
    members: list[tuple[int, ...]]
    kind: list[int]
    speed: list[tuple[float, ...]]

    @classmethod
    def of(cls, snap: Snapshot) -> "PairProgram":
        program = cls(snap, [], [], [])
        names = snap.cluster.accelerators
        explicit = {frozenset(pair.jobs): pair for pair in snap.pairs}
        n = len(snap.job)
        for m in range(n):
            for j, name in enumerate(names):
                if snap.gang[m] <= snap.capacity[j]:
                    program.add((m,), j, (float(snap.speed[m, j]),))
                for other in range(m + 1, n):
                    if snap.gang[m] != snap.gang[other] or snap.gang[m] > snap.capacity[j]:
                        continue
                    if snap.speeds is not None:
                        a, b = (snap.profiles.workload[x] for x in (m, other))
                        held = (name,) * int(snap.gang[m])
                        both = (
                            snap.speeds.speed(a, held, partner=b),
                            snap.speeds.speed(b, held, partner=a),
                        )
                    else:
                        pair = explicit.get(frozenset((snap.ids[m], snap.ids[other])))
                        if pair is None:
                            continue
                        both = pair.speeds[name]
                        both = both if pair.jobs[0] == snap.ids[m] else both[::-1]
                    if min(both) > 0:
                        program.add((m, other), j, both)
        return program

    def add(self, members: tuple[int, ...], accelerator: int, speed: tuple[float, ...]) -> None:
        self.members.append(members)
        self.kind.append(accelerator)
        self.speed.append(speed)

    def rows(self) -> tuple[np.ndarray, np.ndarray]:
        """Rows of time and of devices, and their upper bounds."""
        n, width = len(self.snap.job), len(self.snap.capacity)
        matrix = np.zeros((n + width, len(self.members)))
        for c, (members, j) in enumerate(zip(self.members, self.kind, strict=True)):
            matrix[list(members), c] = 1.0
            matrix[n + j, c] = self.snap.gang[members[0]]
        return matrix, np.append(np.ones(n), self.snap.capacity)

    def gain(self, scale: np.ndarray) -> np.ndarray:
        """Jobs × columns → level per unit of time."""
        gain = np.zeros((len(self.snap.job), len(self.members)))
        for c, (members, speed) in enumerate(zip(self.members, self.speed, strict=True)):
            for m, s in zip(members, speed, strict=True):
                gain[m, c] = s * scale[m]
        return gain

    def best(self, value: np.ndarray, floor: np.ndarray, gain: np.ndarray) -> float:
        """Return the greatest value · y with levels of at least ``floor``."""
        rows, upper = self.rows()
        matrix = np.vstack([rows, gain])
        solution = solve_lp(
            LinearProgram(
                -value,
                Columns.dense(matrix),
                np.append(np.full(len(upper), -INFINITY), floor),
                np.append(upper, np.full(len(floor), INFINITY)),
                np.zeros(matrix.shape[1]),
                np.full(matrix.shape[1], INFINITY),
            )
        )
        return -solution.objective

    def greatest_common(self, gain: np.ndarray, fixed: np.ndarray) -> float:
        """Return the greatest t with levels of t, or of ``fixed`` where that is a number."""
        rows, upper = self.rows()
        rises = np.isnan(fixed).astype(float)
        matrix = np.vstack(
            [np.column_stack([rows, np.zeros(len(rows))]), np.column_stack([gain, -rises])]
        )
        floor = np.where(np.isnan(fixed), 0.0, fixed * (1 - 1e-9))
        cost = np.zeros(matrix.shape[1])
        cost[-1] = -1.0
        solution = solve_lp(
            LinearProgram(
                cost,
                Columns.dense(matrix),
                np.append(np.full(len(upper), -INFINITY), floor),
                np.append(upper, np.full(len(floor), INFINITY)),
                np.zeros(len(cost)),
                np.full(len(cost), INFINITY),
            )
        )
        return -solution.objective

    def lexicographic(self, scale: np.ndarray) -> np.ndarray:
        """Return the sorted max-min levels, one program for every job and level."""
        gain = self.gain(scale)
        fixed = np.full(len(scale), np.nan)
        while np.isnan(fixed).any():
            t = self.greatest_common(gain, fixed)
            floor = np.where(np.isnan(fixed), t, fixed) * (1 - 1e-8)
            stuck = [
                m
                for m in np.isnan(fixed).nonzero()[0]
                if self.best(gain[m], floor, gain) <= t * (1 + 1e-5)
            ]
            assert stuck
            fixed[stuck] = t
        return np.sort(fixed)


def normal_scale(snap: Snapshot) -> np.ndarray:
    mean = (snap.speed * snap.capacity).sum(axis=1) / snap.capacity.sum()
    scale: np.ndarray = snap.gang / (snap.weight * mean)
    return scale


def check_feasible(snap: Snapshot, allocation: Allocation) -> None:
    assert (allocation.share >= 0).all()
    row = {number: i for i, number in enumerate(snap.job.tolist())}
    time, used = np.zeros(len(snap.job)), np.zeros(len(snap.capacity))
    for members, shares in zip(allocation.members.tolist(), allocation.share, strict=True):
        rows = [row[m] for m in members if m >= 0]
        assert len(set(rows)) == len(rows)
        assert len(set(snap.gang[rows].tolist())) == 1
        time[rows] += shares.sum()
        for column, share in zip(allocation.columns, shares, strict=True):
            used[column.accelerator] += snap.gang[rows[0]] * share
    assert (time <= 1 + 1e-9).all()
    assert (used <= snap.capacity * (1 + 1e-9)).all()


def speed_of_units(snap: Snapshot, allocation: Allocation) -> np.ndarray:
    """Return the jobs' speeds from the units' shares alone."""
    program = PairProgram.of(snap)
    known = {
        (frozenset(m), j): dict(zip(m, s, strict=True))
        for m, j, s in zip(program.members, program.kind, program.speed, strict=True)
    }
    row = {number: i for i, number in enumerate(snap.job.tolist())}
    speed = np.zeros(len(snap.job))
    for members, shares in zip(allocation.members.tolist(), allocation.share, strict=True):
        rows = frozenset(row[m] for m in members if m >= 0)
        for column, share in zip(allocation.columns, shares, strict=True):
            if share > 0:
                for m, s in known[rows, column.accelerator].items():
                    speed[m] += s * share
    return speed
