"""Devices that other users hold are reported one by one, and never include our running leases."""

from fairlead.engines.base import DevicesTakenReport
from fairlead.engines.slurm.commands import (
    SlurmJob,
    SlurmNode,
    read_job,
    read_node,
)
from fairlead.engines.slurm.foreign_jobs import ForeignDevices, LeasedDevices
from fairlead.model.cluster import Node

KNOWN = (Node("n1", ("v100", "v100", "k80", "k80")),)


def node(
    v100: int = 0, k80: int = 0, *, idle_cpus: int = 64, has: str = "gpu:v100:2,gpu:k80:2"
) -> dict[str, SlurmNode]:
    used = f"gpu:v100:{v100}(IDX:N/A),gpu:k80:{k80}(IDX:N/A)"
    cpus = f"CPUAlloc={64 - idle_cpus} CPUTot=64"
    line = f"NodeName=n1 {cpus} Gres={has} GresUsed={used} State=MIXED"
    return {"n1": read_node(line)}


def job(gres: str, state: str = "RUNNING") -> SlurmJob:
    return read_job(f"17|fairlead-ab-5.0|{state}|n1|gres:{gres}|0|None", "|")


def reported(
    foreign: ForeignDevices, nodes: dict[str, SlurmNode], *jobs: SlurmJob, **leased: set[int]
) -> object:
    """Return the devices reported by two polls, since one poll may see a job that is changing."""
    ours = {"n1": LeasedDevices(**leased)}
    first = foreign.update(nodes, KNOWN, jobs, ours)
    reports = first + foreign.update(nodes, KNOWN, jobs, ours)
    return reports[0].numbers if reports else None


def test_the_first_poll_reports_every_node_even_without_foreign_jobs() -> None:
    foreign = ForeignDevices(cpus_per_device=1)
    assert foreign.update(node(), KNOWN, (), {}) == [DevicesTakenReport("n1", ())]
    assert foreign.update(node(), KNOWN, (), {}) == []


def test_devices_of_other_users_are_reported_and_the_rest_stays_usable() -> None:
    foreign = ForeignDevices(cpus_per_device=1)
    assert reported(foreign, node(k80=1)) == (3,)
    assert reported(foreign, node(k80=1, v100=2)) == (0, 1, 3)
    assert reported(foreign, node(k80=1)) == (3,)
    assert reported(foreign, node()) == ()


def test_lost_devices_of_a_node_are_taken_and_new_ones_serve_others() -> None:
    foreign, lost, more = ForeignDevices(1), "gpu:v100:1,gpu:k80:2", "gpu:v100:4,gpu:k80:2"
    assert reported(foreign, node(has=lost)) == (1,)
    assert reported(foreign, node(v100=1, has=lost), job("gpu:v100:1"), running={1}) == (0,)
    assert reported(foreign, node(v100=1, k80=1, has=lost)) == (0, 1, 3)
    assert reported(foreign, node(v100=2, has=more)) == ()
    assert reported(foreign, node(v100=3, has=more)) == (1,)
    assert reported(foreign, node(has="gpu:a100:4")) is None  # the node is down


def test_devices_of_our_own_jobs_are_not_reported() -> None:
    foreign = ForeignDevices(cpus_per_device=1)
    assert reported(foreign, node(v100=2), job("gpu:v100:2"), running={0, 1}) == ()
    assert reported(foreign, node(v100=2), job("gpu:v100:1"), running={1}) == (0,)
    # The reported device stays the same although our lease has moved.
    assert reported(foreign, node(v100=1)) is None
    pending = job("gpu:v100:1", "PENDING")
    assert reported(foreign, node(v100=1), pending, waiting={1}) is None


def test_devices_of_pending_leases_are_reported_only_if_no_others_are_left() -> None:
    foreign = ForeignDevices(cpus_per_device=1)
    pending = job("gpu:v100:2", "PENDING")
    assert reported(foreign, node(v100=1), pending, waiting={0, 1}) == (1,)
    assert reported(foreign, node(v100=2), pending, waiting={0, 1}) == (0, 1)


def test_a_change_seen_by_one_poll_only_is_not_reported() -> None:
    foreign = ForeignDevices(cpus_per_device=1)
    assert reported(foreign, node()) == ()
    assert foreign.update(node(v100=1), KNOWN, (), {}) == []
    assert foreign.update(node(), KNOWN, (), {}) == []
    assert foreign.update(node(), KNOWN, (), {}) == []


def test_devices_without_free_cores_are_reported_as_taken() -> None:
    foreign = ForeignDevices(cpus_per_device=8)
    assert reported(foreign, node(k80=1, idle_cpus=16)) == (2, 3)
    assert reported(foreign, node(k80=1, idle_cpus=7)) == (0, 1, 2, 3)
    assert reported(foreign, node(idle_cpus=64)) == ()
