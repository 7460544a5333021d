"""What others hold is told device by device, and what we run on is never said to be theirs."""

from fairlead.engines.base import DevicesTaken
from fairlead.engines.slurm.commands import (
    SlurmJob,
    SlurmNode,
    read_job,
    read_node,
)
from fairlead.engines.slurm.foreign_jobs import Others, Ours
from fairlead.model.cluster import Node

KNOWN = (Node("n1", ("v100", "v100", "k80", "k80")),)


def node(v100: int = 0, k80: int = 0, *, idle_cpus: int = 64) -> dict[str, SlurmNode]:
    used = f"gpu:v100:{v100}(IDX:N/A),gpu:k80:{k80}(IDX:N/A)"
    cpus = f"CPUAlloc={64 - idle_cpus} CPUTot=64"
    line = f"NodeName=n1 {cpus} Gres=gpu:v100:2,gpu:k80:2 GresUsed={used} State=MIXED"
    return {"n1": read_node(line)}


def job(gres: str, state: str = "RUNNING") -> SlurmJob:
    return read_job(f"17|fairlead-ab-5.0|{state}|n1|gres:{gres}|None")


def told(others: Others, seen: dict[str, SlurmNode], *jobs: SlurmJob, **ours: set[int]) -> object:
    """Look twice, for what was seen once may be a job of ours that came or went meanwhile."""
    mine = {"n1": Ours(**ours)}
    reports = others.look(seen, KNOWN, jobs, mine) + others.look(seen, KNOWN, jobs, mine)
    return reports[0].numbers if reports else None


def test_at_first_every_node_is_told_also_where_others_hold_nothing() -> None:
    others = Others(cpus_per_device=1)
    assert others.look(node(), KNOWN, (), {}) == [DevicesTaken("n1", ())]
    assert others.look(node(), KNOWN, (), {}) == []


def test_others_hold_one_of_four_devices_and_three_are_left_to_us() -> None:
    others = Others(cpus_per_device=1)
    assert told(others, node(k80=1)) == (3,)
    assert told(others, node(k80=1, v100=2)) == (0, 1, 3)
    assert told(others, node(k80=1)) == (3,)
    assert told(others, node()) == ()


def test_what_our_own_jobs_hold_is_not_theirs() -> None:
    others = Others(cpus_per_device=1)
    assert told(others, node(v100=2), job("gpu:v100:2"), running={0, 1}) == ()
    assert told(others, node(v100=2), job("gpu:v100:1"), running={1}) == (0,)
    # The one that was said to be theirs stays so, though ours has moved on.
    assert told(others, node(v100=1)) is None
    waits = job("gpu:v100:1", "PENDING")
    assert told(others, node(v100=1), waits, waiting={1}) is None


def test_devices_that_we_wait_for_are_theirs_when_there_are_no_others() -> None:
    others = Others(cpus_per_device=1)
    waits = job("gpu:v100:2", "PENDING")
    assert told(others, node(v100=1), waits, waiting={0, 1}) == (1,)
    assert told(others, node(v100=2), waits, waiting={0, 1}) == (0, 1)


def test_what_was_seen_only_once_is_not_told() -> None:
    others = Others(cpus_per_device=1)
    assert told(others, node()) == ()
    assert others.look(node(v100=1), KNOWN, (), {}) == []
    assert others.look(node(), KNOWN, (), {}) == []
    assert others.look(node(), KNOWN, (), {}) == []


def test_devices_without_cores_cannot_be_used() -> None:
    others = Others(cpus_per_device=8)
    assert told(others, node(k80=1, idle_cpus=16)) == (2, 3)
    assert told(others, node(k80=1, idle_cpus=7)) == (0, 1, 2, 3)
    assert told(others, node(idle_cpus=64)) == ()
