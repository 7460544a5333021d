"""What Slurm prints is read as it is meant, and a lease's parts are put together as one."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from fairlead.engines.base import Ended, LeaseOutcome, NodeDown, NodeUp, Order
from fairlead.engines.keeper import lease_dir
from fairlead.engines.shared.multi_node import split, together
from fairlead.engines.slurm.commands import (
    SlurmNode,
    environment_of,
    read_job,
    read_node,
)
from fairlead.engines.slurm.leases import listed, remove, write
from fairlead.engines.slurm.nodes import SlurmNodeStatus, inventory
from fairlead.model.cluster import Node

LINE = (
    "NodeName=gpu7 Arch=x86_64 CoresPerSocket=1 CPUAlloc=2 ActiveFeatures=a100,rack-12"
    " Gres=gpu:a100_3g.20gb:2(S:0-1),gpu:v100:1(S:0),tmp:5 GresDrain=N/A"
    " GresUsed=gpu:a100_3g.20gb:1(IDX:0),gpu:v100:0(IDX:N/A) NodeAddr=10.0.0.7 NodeHostName=gpu7"
    " OS=Linux 6.1.0 #1 SMP State=MIXED+DRAIN Partitions=gpu,all Reason=State=IDLE Gres=gpu:9 [me]"
)


def node(states: str = "IDLE", *, used: int = 0, name: str = "n1") -> SlurmNode:
    line = f"NodeName={name} Gres=gpu:v100:2 GresUsed=gpu:v100:{used}(IDX:0) State={states}"
    return read_node(line)


def test_a_node_s_line_is_read_and_free_text_cannot_change_it() -> None:
    found = read_node(LINE)
    assert found.devices == ("a100_3g.20gb", "a100_3g.20gb", "v100")
    assert (found.used, found.address) == (("a100_3g.20gb",), "10.0.0.7")
    assert found.partitions == ("gpu", "all")
    assert found.states == {"MIXED", "DRAIN"}
    assert read_node("NodeName=x Gres=gpu:4 State=IDLE").devices == ("gpu",) * 4
    assert read_node("NodeName=x Gres=(null) State=IDLE").devices == ()


@pytest.mark.parametrize(
    ("states", "standing"),
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
def test_only_nodes_that_take_jobs_are_up(states: str, standing: str) -> None:
    assert node(states).standing(reserved=False) == standing


def test_our_own_reservation_does_not_keep_us_out() -> None:
    assert node("IDLE+RESERVED").standing(reserved=True) == "up"


def test_a_job_s_line_is_read() -> None:
    job = read_job("17|fairlead-ab-5.0|RUNNING|n1|gres:gpu:v100:2,gres:gpu:k80:1|None")
    assert (job.name, job.node, job.state) == ("fairlead-ab-5.0", "n1", "RUNNING")
    assert job.devices == ("v100", "v100", "k80")
    assert read_job("9|x|PENDING||N/A|(Nodes|required)").reason == "(Nodes|required)"


def order(*devices: tuple[str, int], kinds: str = "") -> Order:
    return Order(
        lease=5,
        job="j",
        command=("x",),
        directory="",
        devices=devices,
        accelerators=tuple(kinds or "v" * len(devices)),
        checkpoint_dir="",
        log_dir="",
        total_steps=10,
    )


def test_ranks_run_through_the_nodes_and_kinds_stay_with_their_devices() -> None:
    first, second = split(order(("a", 3), ("b", 0), ("a", 1), kinds="kpv"))
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
def test_the_worst_part_says_how_a_lease_ended(
    endings: tuple[LeaseOutcome, ...], steps: float | None, ending: LeaseOutcome
) -> None:
    parts = [Ended(5, one, steps, f"was {one}") for one in endings]
    found = together(order(("a", 0), ("b", 0)), parts)
    assert (found.ending, found.steps) == (ending, steps)


def watch(path: Path) -> SlurmNodeStatus:
    return SlurmNodeStatus(path / "down.json", reserved=False)


KNOWN = (Node("n1", ("v100", "v100")),)


def test_a_silent_node_is_back_when_its_jobs_are_cleared_away(tmp_path: Path) -> None:
    nodes, up = watch(tmp_path), {"n1": node("MIXED", used=1)}
    ours = read_job("17|fairlead-ab-5.0|COMPLETING|n1|gres:gpu:v100:1|None")
    assert nodes.lose("n1", 0.0) == [NodeDown("n1")]
    assert nodes.lose("n1", 0.0) == []
    assert nodes.judge(up, KNOWN, [ours], {}, 1.0) == []
    assert nodes.judge({"n1": node()}, KNOWN, [], {}, 2.0) == [NodeUp("n1")]


def test_what_was_told_before_a_restart_is_told_again(tmp_path: Path) -> None:
    nodes = watch(tmp_path)
    assert nodes.judge({"n1": node("DOWN")}, KNOWN, [], {}, 0.0) == [NodeDown("n1")]
    for states, report in (("DOWN", NodeDown("n1")), ("IDLE", NodeUp("n1"))):
        after = watch(tmp_path)
        after.recall()
        assert after.judge({"n1": node(states)}, KNOWN, [], {}, 0.0) == [report]
        assert after.judge({"n1": node(states)}, KNOWN, [], {}, 1.0) == []


def test_a_node_of_which_slurm_is_unsure_has_a_while_to_answer(tmp_path: Path) -> None:
    nodes, unsure = watch(tmp_path), {"n1": node("IDLE*")}
    assert nodes.judge(unsure, KNOWN, [], {}, 0.0) == []
    assert nodes.judge(unsure, KNOWN, [], {"n1": True}, 100.0) == []
    assert nodes.judge(unsure, KNOWN, [], {"n1": False}, 101.0) == [NodeDown("n1")]


def test_nodes_keep_their_place_in_the_inventory(tmp_path: Path) -> None:
    path = tmp_path / "nodes.json"
    first = inventory(path, [node(name="n10"), node(name="n2")], {"n2": "r1"}, {"n2", "n10"})
    assert [one.id for one in first.nodes] == ["n2", "n10"]
    later = inventory(path, [node(name="n1"), node(name="n10")], {}, {"n1", "n10"})
    assert [(one.id, one.rack) for one in later.nodes] == [("n2", "r1"), ("n10", ""), ("n1", "")]
    assert json.loads(path.read_text())[2][0] == "n1"


def test_jobs_do_not_find_the_scheduler_s_secrets() -> None:
    server = {
        "PATH": "/bin",
        "FAIRLEAD_DATABASE": "x:secret@y",
        "SLURM_JOB_ID": "7",
        "AWS_KEY": "k",
    }
    server["SLURM_CONF"] = "/etc/slurm.conf"
    found = environment_of(server, for_others=False)
    assert found == {"PATH": "/bin", "SLURM_CONF": "/etc/slurm.conf", "AWS_KEY": "k"}
    others = environment_of(server, for_others=True)
    assert others == {"PATH": "/bin", "SLURM_CONF": "/etc/slurm.conf"}


def test_a_lease_s_directory_goes_when_no_keeper_lives_there(tmp_path: Path) -> None:
    mine = order(("a", 0), ("b", 0))
    write(tmp_path / "5", mine, "fairlead-ab-5", {})
    (tmp_path / ".4").mkdir()  # a removal that was not completed
    assert listed(tmp_path) == [tmp_path / "5"]
    alive = lease_dir.hold(tmp_path / "5" / "1")
    assert alive is not None
    assert not remove(tmp_path / "5")
    assert listed(tmp_path) == [tmp_path / "5"]
    alive.close()
    assert remove(tmp_path / "5")
    assert remove(tmp_path / "5")
    assert list(tmp_path.iterdir()) == []


def test_a_keeper_that_begins_when_its_lease_is_cleared_away_runs_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "fairlead.engines.slurm.keeper", str(tmp_path / "5" / "0")]
    assert subprocess.run(command, check=False).returncode == 0
    assert list(tmp_path.iterdir()) == []
