"""Reading Slurm's output, and combining the parts of a lease."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from fairlead.engines.base import Ended, LaunchOrder, NodeDown, NodeUp
from fairlead.engines.keeper import lease_dir
from fairlead.engines.shared.multi_node import combined_outcome, split_by_node
from fairlead.engines.slurm import leases as slurm_leases
from fairlead.engines.slurm.commands import (
    Slurm,
    SlurmNode,
    read_job,
    read_node,
    slurm_environment,
)
from fairlead.engines.slurm.lease_table import SlurmLeaseTable
from fairlead.engines.slurm.leases import TrackedSlurmLease, list_directories, remove, write
from fairlead.engines.slurm.nodes import SlurmNodeStatus, inventory
from fairlead.model.cluster import Node
from fairlead.model.lease_outcome import LeaseOutcome

LINE = (
    "NodeName=gpu7 Arch=x86_64 CoresPerSocket=1 CPUAlloc=2 ActiveFeatures=a100,rack-12"
    " Gres=gpu:a100_3g.20gb:2(S:0-1),gpu:v100:1(S:0),tmp:5 GresDrain=N/A"
    " GresUsed=gpu:a100_3g.20gb:1(IDX:0),gpu:v100:0(IDX:N/A) NodeAddr=10.0.0.7 NodeHostName=gpu7"
    " OS=Linux 6.1.0 #1 SMP State=MIXED+DRAIN Partitions=gpu,all Reason=State=IDLE Gres=gpu:9 [me]"
)


def node(states: str = "IDLE", *, used: int = 0, name: str = "n1") -> SlurmNode:
    line = f"NodeName={name} Gres=gpu:v100:2 GresUsed=gpu:v100:{used}(IDX:0) State={states}"
    return read_node(line)


def test_a_node_s_line_is_parsed_and_free_text_cannot_change_it() -> None:
    parsed = read_node(LINE)
    assert parsed.devices == ("a100_3g.20gb", "a100_3g.20gb", "v100")
    assert (parsed.used, parsed.address) == (("a100_3g.20gb",), "10.0.0.7")
    assert parsed.partitions == ("gpu", "all")
    assert parsed.states == {"MIXED", "DRAIN"}
    assert read_node("NodeName=x Gres=gpu:4 State=IDLE").devices == ("gpu",) * 4
    assert read_node("NodeName=x Gres=(null) State=IDLE").devices == ()


@pytest.mark.parametrize(
    ("states", "availability"),
    [
        ("IDLE", "up"),
        ("ALLOCATED+COMPLETING", "up"),
        ("MIXED+PLANNED", "up"),
        ("IDLE*", "unsure"),
        ("UNKNOWN+NOT_RESPONDING", "unsure"),
        ("DOWN*", "down"),
        ("IDLE+DRAIN", "down"),
        ("IDLE+RESERVED", "down"),
        ("IDLE+SOMETHING_NEW", "down"),
    ],
)
def test_only_nodes_that_start_jobs_are_up(states: str, availability: str) -> None:
    assert node(states).availability(reserved=False) == availability


def test_nodes_of_our_own_reservation_are_up() -> None:
    assert node("IDLE+RESERVED").availability(reserved=True) == "up"


def test_a_job_s_line_is_parsed() -> None:
    job = read_job("17|fairlead-ab-5.0|RUNNING|n1|gres:gpu:v100:2,gres:gpu:k80:1|0|None", "|")
    assert (job.name, job.node, job.state) == ("fairlead-ab-5.0", "n1", "RUNNING")
    assert job.devices == ("v100", "v100", "k80")
    assert read_job("9;x|y;PENDING;;N/A;7;(Nodes|required)", ";").reason == "(Nodes|required)"


def order(*devices: tuple[str, int], accelerators: str = "") -> LaunchOrder:
    return LaunchOrder(
        lease=5,
        job="j",
        command=("x",),
        directory="",
        devices=devices,
        accelerators=tuple(accelerators or "v" * len(devices)),
        checkpoint_dir="",
        log_dir="",
        total_steps=10,
    )


def test_ranks_follow_the_nodes_and_accelerators_stay_with_their_devices() -> None:
    first, second = split_by_node(order(("a", 3), ("b", 0), ("a", 1), accelerators="kpv"))
    assert (first.devices, first.accelerators) == ((("a", 1), ("a", 3)), ("v", "k"))
    assert (first.first_rank, second.first_rank) == (0, 2)
    assert (first.world_size, second.world_size) == (3, 3)


@pytest.mark.parametrize(
    ("endings", "steps", "ending"),
    [
        (("finished", "finished"), 10.0, "finished"),
        (("finished", "left"), 10.0, "finished"),
        (("finished", "left"), 9.0, "left"),
        (("left", "failed"), 9.0, "failed"),
        (("failed", "lost"), None, "lost"),
        (("refused", "lost"), None, "refused"),
    ],
)
def test_a_lease_has_the_worst_outcome_of_its_parts(
    endings: tuple[LeaseOutcome, ...], steps: float | None, ending: LeaseOutcome
) -> None:
    parts = [Ended(5, each, steps, f"was {each}") for each in endings]
    combined = combined_outcome(order(("a", 0), ("b", 0)), parts)
    assert (combined.ending, combined.steps) == (ending, steps)


@pytest.mark.parametrize("ending", ["left", "failed"])
def test_steps_of_a_part_that_ended_by_itself_count_only_if_all_have(ending: LeaseOutcome) -> None:
    lease, saved = order(("a", 0), ("b", 0)), Ended(5, ending, 4.0)
    combined = combined_outcome(lease, [Ended(5, "finished", 5.0), saved])
    assert (combined.ending, combined.steps) == (ending, 4.0)
    both = [Ended(5, "finished", steps) for steps in (5.0, 4.0)]
    assert combined_outcome(lease, both).steps == 5.0


def status(path: Path) -> SlurmNodeStatus:
    return SlurmNodeStatus(path / "down.json", reserved=False)


KNOWN = (Node("n1", ("v100", "v100")),)


def test_a_silent_node_is_up_once_slurm_has_cleared_its_jobs(tmp_path: Path) -> None:
    nodes, up = status(tmp_path), {"n1": node("MIXED", used=1)}
    ours = read_job("17|fairlead-ab-5.0|COMPLETING|n1|gres:gpu:v100:1|0|None", "|")
    assert nodes.mark_silent("n1", 0.0) == [NodeDown("n1")]
    assert nodes.mark_silent("n1", 0.0) == []
    assert nodes.update_all(up, KNOWN, [ours], {}, 1.0) == []
    assert nodes.update_all({"n1": node()}, KNOWN, [], {}, 2.0) == [NodeUp("n1")]


def test_reports_on_nodes_are_repeated_after_a_restart(tmp_path: Path) -> None:
    nodes = status(tmp_path)
    assert nodes.update_all({"n1": node("DOWN")}, KNOWN, [], {}, 0.0) == [NodeDown("n1")]
    for states, report in (("DOWN", NodeDown("n1")), ("IDLE", NodeUp("n1"))):
        after = status(tmp_path)
        after.load()
        assert after.update_all({"n1": node(states)}, KNOWN, [], {}, 0.0) == [report]
        assert after.update_all({"n1": node(states)}, KNOWN, [], {}, 1.0) == []


def test_a_node_in_an_uncertain_state_has_some_time_to_answer(tmp_path: Path) -> None:
    nodes, unsure = status(tmp_path), {"n1": node("IDLE*")}
    assert nodes.update_all(unsure, KNOWN, [], {}, 0.0) == []
    assert nodes.update_all(unsure, KNOWN, [], {"n1": True}, 100.0) == []
    assert nodes.update_all(unsure, KNOWN, [], {"n1": False}, 101.0) == [NodeDown("n1")]


def test_nodes_keep_their_index_in_the_registry(tmp_path: Path) -> None:
    path = tmp_path / "nodes.json"
    first = inventory(path, [node(name="n10"), node(name="n2")], {"n2": "r1"}, {"n2", "n10"})
    assert [each.id for each in first.nodes] == ["n2", "n10"]
    later = inventory(path, [node(name="n1"), node(name="n10")], {}, {"n1", "n10"})
    assert [(n.id, n.rack) for n in later.nodes] == [("n2", "r1"), ("n10", ""), ("n1", "")]
    assert json.loads(path.read_text())[2][0] == "n1"


def test_jobs_do_not_inherit_the_scheduler_s_secrets() -> None:
    server = {
        "PATH": "/bin",
        "FAIRLEAD_DATABASE": "x:secret@y",
        "SLURM_JOB_ID": "7",
        "AWS_KEY": "k",
    }
    server["SLURM_CONF"] = "/etc/slurm.conf"
    ours = slurm_environment(server, for_others=False)
    assert ours == {"PATH": "/bin", "SLURM_CONF": "/etc/slurm.conf"}
    more = slurm_environment(server, for_others=False, more=("AWS_*",))
    assert more == {**ours, "AWS_KEY": "k"}
    others = slurm_environment(server, for_others=True)
    assert others == {"PATH": "/bin", "SLURM_CONF": "/etc/slurm.conf"}


def test_a_lease_directory_is_removed_once_no_keeper_is_alive(tmp_path: Path) -> None:
    write(tmp_path / "5", order(("a", 0), ("b", 0)), "fairlead-ab-5", {})
    (tmp_path / ".4").mkdir()  # an interrupted removal
    assert list_directories(tmp_path) == [tmp_path / "5"]
    alive = lease_dir.try_lock(tmp_path / "5" / "1")
    assert alive is not None
    assert not remove(tmp_path / "5")
    assert list_directories(tmp_path) == [tmp_path / "5"]
    alive.close()
    assert remove(tmp_path / "5")
    assert remove(tmp_path / "5")
    assert list(tmp_path.iterdir()) == []


def test_a_keeper_without_a_lease_directory_runs_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "fairlead.engines.slurm.keeper", str(tmp_path / "5" / "0")]
    assert subprocess.run(command, check=False).returncode == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("order_of_lines", [1, -1])
def test_jobs_of_others_with_the_names_of_ours_are_ignored(
    tmp_path: Path, order_of_lines: int
) -> None:
    lines = ("1|fl-5.0|RUNNING|n1|N/A|7|None", "2|fl-5.0|PENDING|n1|N/A|8|None")[::order_of_lines]
    jobs = [read_job(line, "|") for line in lines]
    table = SlurmLeaseTable(Slurm({}), "fl-", tmp_path)
    parts = slurm_leases.read(tmp_path / "5", order(("n1", 0)), "fl-5", 7)
    table.leases[5] = TrackedSlurmLease(order(("n1", 0)), tmp_path / "5", parts, 0.0)
    assert [job.id for job in table.own_jobs(jobs).values()] == ["1"]
    table.leases.clear()
    table.user = 8
    assert [job.id for job in table.own_jobs(jobs).values()] == ["2"]
