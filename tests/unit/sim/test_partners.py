"""Packed jobs run at their packed speeds in the virtual cluster."""

from dataclasses import dataclass, field

import numpy as np
import pytest

from fairlead.model.cluster import Cluster
from fairlead.model.commands import Launch, Renew
from fairlead.model.job import Job
from fairlead.model.lease import SLOT_LIMIT, Placement, Placements
from fairlead.model.speeds.table import SpeedKey, SpeedTable
from fairlead.sim.cluster.virtual_cluster import VirtualCluster
from fairlead.sim.physics.true_speeds import TrueSpeeds
from fairlead.sim.record import Record

SOLO = {"a": 10.0, "b": 8.0, "c": 4.0}
PACKED = {
    ("a", "b"): 6.0,
    ("b", "a"): 5.0,
    ("a", "c"): 2.0,
    ("c", "a"): 3.0,
    ("b", "c"): 4.0,
    ("c", "b"): 0.0,
}
SPEEDS = SpeedTable(
    {
        SpeedKey(w, gang, "v100", partner=other): speed * gang
        for gang in (1, 2)
        for (w, other), speed in [*(((w, None), s) for w, s in SOLO.items()), *PACKED.items()]
    }
)


@dataclass
class World:
    """Jobs a, b and c of 1000 steps on one accelerator, driven by hand."""

    gang: int = 1
    restore_cost_s: float = 0.0
    until: float = 1e6
    lease: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        cluster = Cluster.of({"v100": 4})
        jobs = [Job(id=w, workload=w, total_steps=1000, gang=self.gang) for w in "abc"]
        self.record = Record.of(jobs, 1, intervals=True)
        self.virtual = VirtualCluster(
            cluster,
            TrueSpeeds(cluster, SPEEDS, jobs),
            self.record,
            restore_cost_s=self.restore_cost_s,
            checkpoint_s=30.0,
        )
        self._epoch = 0

    def start(self, at: float, **on: int) -> float:
        """Start jobs from the given first devices on; return the time of the next completion."""
        units, numbers = [], []
        for name, first in on.items():
            devices = tuple(range(first, first + self.gang))
            units.append(Placement("abc".index(name), 0, devices))
            self.lease[name] = self._epoch * SLOT_LIMIT + "abc".index(name)
            self._epoch += 1
            numbers.append(self.lease[name])
        self.virtual.launch(Launch(np.array(numbers), Placements.of(units), self.until), at)
        return self.virtual.next_finish_at()

    def stop(self, at: float, *names: str, lost: bool = False) -> list[float]:
        """End the leases of jobs; return the steps that each keeps."""
        leases = np.array([self.lease[name] for name in names])
        ended = self.virtual.end_leases(leases, at, "lost" if lost else "left")
        self.virtual.next_finish_at()
        return [float(kept) for kept in ended.steps]

    def finish(self, name: str) -> float:
        """Finish the next job, which must be this one; return the time."""
        at = self.virtual.next_finish_at()
        job, ended = self.virtual.finish(at)
        assert job == "abc".index(name)
        assert ended.steps.tolist() == [1000.0]
        return at


def test_jobs_started_together_run_at_their_packed_speeds() -> None:
    world = World()
    world.start(0.0, a=0, b=0)
    assert world.finish("a") == pytest.approx(1000 / 6)
    # b makes 5 steps per second while it shares with a, then 8.
    assert world.finish("b") == pytest.approx(1000 / 6 + (1000 - 5000 / 6) / 8)


def test_partner_slows_a_job_only_while_it_shares_the_device() -> None:
    world = World()
    assert world.start(0.0, a=2) == pytest.approx(100.0)
    assert world.start(20.0, b=2) == pytest.approx(20 + 800 / 6)
    assert world.stop(70.0, "b") == pytest.approx([250.0])
    assert world.finish("a") == pytest.approx(70 + (1000 - 200 - 300) / 10)


def test_steps_stay_exact_when_partners_change_at_one_instant() -> None:
    world = World()
    world.start(0.0, a=0, b=0)
    assert world.stop(10.0, "b") == pytest.approx([50.0])
    world.start(10.0, c=0)
    assert world.stop(30.0, "a", "c") == pytest.approx([60.0 + 40.0, 60.0])


def test_slowest_of_several_partners_determines_the_speed() -> None:
    world = World()
    world.start(0.0, a=0, b=0, c=0)
    assert world.stop(10.0, "a", "b", "c") == pytest.approx([20.0, 40.0, 0.0])


def test_jobs_on_other_devices_do_not_slow_a_job() -> None:
    world = World()
    world.start(0.0, a=0, b=1)
    world.start(5.0, c=0)
    assert world.stop(10.0, "b") == pytest.approx([80.0])


def test_packed_gangs_slow_each_other_on_all_their_devices() -> None:
    world = World(gang=2)
    world.start(0.0, a=0)
    world.start(10.0, b=0)
    assert world.stop(20.0, "a", "b") == pytest.approx([200.0 + 120.0, 100.0])


def test_job_with_packed_speed_0_waits_for_its_partner_to_finish() -> None:
    world = World()
    world.start(0.0, b=0, c=0)
    assert world.finish("b") == pytest.approx(250.0)
    assert world.finish("c") == pytest.approx(250.0 + 250.0)


def test_completion_after_the_first_expiry_is_scheduled_at_renewal() -> None:
    world = World(until=50.0)
    assert world.start(0.0, a=0, b=0) == np.inf
    world.virtual.renew(Renew(np.array([world.lease["a"], world.lease["b"]]), 300.0))
    assert world.finish("a") == pytest.approx(1000 / 6)
    world.finish("b")


def test_restoring_job_makes_no_steps_but_slows_its_partner() -> None:
    world = World(restore_cost_s=8.0)
    world.start(0.0, a=0)
    assert world.stop(10.0, "a") == pytest.approx([100.0])
    world.start(10.0, b=0)
    world.start(20.0, a=0)  # restores until 28
    assert world.stop(30.0, "a", "b") == pytest.approx([100.0 + 2 * 6.0, 80.0 + 50.0])


def test_lost_job_restarts_from_its_last_checkpoint_after_speed_changes() -> None:
    """Checkpoints are 30 s apart: at 60 s, a had run 20 s alone and 40 s with b."""
    world = World()
    world.start(0.0, a=0)
    world.start(20.0, b=0)
    world.stop(65.0, "b")
    assert world.stop(85.0, "a", lost=True) == pytest.approx([200.0 + 40 * 6.0])


def test_job_lost_before_its_first_checkpoint_restarts_from_the_start_of_its_lease() -> None:
    world = World()
    world.start(0.0, a=0)
    world.stop(12.0, "a")
    world.start(50.0, a=0, b=0)
    world.stop(60.0, "b")
    assert world.stop(75.0, "a", lost=True) == pytest.approx([120.0])


def test_device_time_of_a_shared_device_is_split_among_its_jobs() -> None:
    world = World(gang=2)
    world.start(0.0, a=0)
    world.start(10.0, b=0)
    world.start(15.0, c=2)
    world.stop(30.0, "b")
    world.stop(40.0, "a", "c")
    assert world.record.device_s[:, 0].tolist() == pytest.approx([2 * 30.0, 20.0, 50.0])


def test_every_lease_is_recorded_once_with_all_its_devices() -> None:
    world = World(gang=2)
    world.start(0.0, a=0)
    world.start(10.0, b=0)
    world.stop(30.0, "b")
    world.stop(40.0, "a")
    assert world.record.intervals is not None
    columns = world.record.intervals.columns()
    recorded = [tuple(column.tolist()) for column in columns]
    assert recorded == [(1, 0), (0, 0), (2, 2), (10.0, 0.0), (30.0, 40.0)]


def test_time_of_first_steps_is_exact_across_speed_changes() -> None:
    world = World()
    world.start(0.0, a=0)
    world.start(4.0, b=0)
    world.stop(30.0, "a", "b")
    assert world.record.first_steps_at[:2].tolist() == pytest.approx([4 + 60 / 6, 4 + 100 / 5])


def test_progress_uses_packed_speeds() -> None:
    world = World()
    world.start(0.0, a=0, b=0)
    world.start(10.0, c=1)
    progress = world.virtual.progress(20.0)
    assert progress is not None
    assert progress.steps.tolist() == pytest.approx([120.0, 100.0, 40.0])


@pytest.mark.parametrize("gang", [1, 2])
def test_random_starts_and_stops_match_a_simple_integration(gang: int) -> None:
    """500 runs; each job's steps are summed interval by interval."""
    rng = np.random.default_rng(7)
    checked = 0
    for _ in range(500):
        world = World(gang)
        on: dict[str, int] = {}
        steps = dict.fromkeys("abc", 0.0)
        at = 0.0
        for _ in range(int(rng.integers(3, 9))):
            later = at + float(rng.uniform(0.0, 8.0))
            for name, device in on.items():
                partners = [other for other in on if other != name and on[other] == device]
                rate = min([PACKED[name, other] for other in partners] or [SOLO[name]])
                steps[name] += gang * rate * (later - at)
            at = later
            name = str(rng.choice(list("abc")))
            if name in on:
                assert world.stop(at, name) == pytest.approx([steps[name]])
                del on[name]
                checked += 1
            else:
                on[name] = gang * int(rng.integers(2))
                world.start(at, **{name: on[name]})
    assert checked > 500
