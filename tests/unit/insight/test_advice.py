"""Advice ranks tenants by the fraction of their entitlement held and assigns devices once."""

import csv
import io

import pytest

from fairlead.cli.export import formats
from fairlead.cli.export.slurm import advise_slurm
from fairlead.engines.slurm.queue import SlurmQueue, expand, read_queue
from fairlead.insight.advice import Advice, advise
from fairlead.model.cluster import Cluster, Node
from fairlead.model.instance import Instance, InstanceJob
from fairlead.model.snapshot import snapshot_of
from fairlead.model.tenants.tenant import Tenant
from fairlead.policies.rules.priority import create_policy

FAST, SLOW = {"v100": 4.0, "k80": 1.0}, {"v100": 1.2, "k80": 1.0}
NODES = "\n".join(
    f"NodeName={name} Gres=gpu:{accelerator}:{count} GresUsed=gpu:0 NodeAddr={name} State={state}"
    f" Partitions=gpu Reason=x"
    for name, accelerator, count, state in (
        ("n1", "v100", 2, "IDLE"),
        ("n2", "v100", 2, "DOWN*"),
        ("n10", "k80", 4, "MIXED"),
    )
)


def slurm_job(number: int, name: str = "x", state: str = "PENDING", more: str = "") -> str:
    return (
        f"JobId={number} JobName={name} UserId=ann(100) GroupId=g(1) Account=(null) QOS=(null)"
        f" JobState={state} Reason=None SubmitTime=2026-01-01T00:00:{number:02d}"
        f" Partition=gpu NumNodes=1 TRES=cpu=1 {more}MinCPUsNode=1 TresPerNode=gres:gpu:1"
    )


def problem(
    jobs: list[InstanceJob], *tenants: Tenant, nodes: tuple[Node, ...] = ()
) -> list[Advice]:
    cluster = Cluster(nodes or (Node("a", ("v100", "v100")), Node("b", ("k80",) * 4)))
    snap = snapshot_of(Instance(cluster, tuple(jobs), tenants))
    return advise(snap, create_policy("max-min"))


def test_jobs_start_on_their_allocated_accelerators_until_devices_run_out() -> None:
    jobs = [InstanceJob(id=f"f{i}", speeds=FAST, tenant="t", elapsed_s=9.0 - i) for i in range(4)]
    jobs += [InstanceJob(id=f"s{i}", speeds=SLOW, tenant="u") for i in range(4)]
    advised = problem(jobs)
    assert [advice.rank for advice in advised] == list(range(1, 9))
    started = [advice for advice in advised if advice.action == "start"]
    assert len(started) == 6
    assert {advice.job[0] for advice in started if advice.accelerator == "v100"} == {"f"}
    used = {
        node: sum(n for advice in started for name, n in advice.nodes if name == node)
        for node in "ab"
    }
    assert used == {"a": 2, "b": 4}


def test_tenants_are_served_in_proportion_to_their_weights() -> None:
    jobs = [InstanceJob(id=f"{t}{i}", speeds=SLOW, tenant=t, weight=w)
            for t, w in (("heavy", 2.0), ("light", 1.0)) for i in range(6)]  # fmt: skip
    order = [advice.tenant for advice in problem(jobs) if advice.action == "start"]
    assert (order.count("heavy"), order.count("light")) == (4, 2)


def test_gang_prefers_one_node_and_waits_if_it_does_not_fit() -> None:
    nodes = (Node("a", ("v100",)), Node("b", ("v100",) * 3), Node("c", ("v100",) * 2))
    two = InstanceJob(id="two", speeds={"v100": 1.0}, gang=2)
    five = InstanceJob(id="five", speeds={"v100": 1.0}, gang=5, priority=-1)
    advised = {advice.job: advice for advice in problem([two, five], nodes=nodes)}
    assert advised["two"].nodes == (("c", 2),)
    assert (advised["five"].action, advised["five"].nodes) == ("wait", ())


def test_fixed_devices_per_node_are_respected() -> None:
    nodes = (Node("a", ("v100",) * 3), Node("b", ("v100",)), Node("c", ("v100",) * 2))
    job = InstanceJob(id="j", speeds={"v100": 1.0}, gang=4)
    snap = snapshot_of(Instance(Cluster(nodes), (job,)))
    (spread,) = advise(snap, create_policy("max-min"), {"j": 2})
    assert spread.nodes == (("a", 2), ("c", 2))
    (wide,) = advise(snap, create_policy("max-min"), {"j": 4})
    assert wide.action == "wait"


def test_slurm_queue_holds_running_jobs_and_down_nodes() -> None:
    holds = "JOB_GRES=gpu:k80:3 Nodes=n10 CPU_IDs=0 Mem=0 GRES=gpu:k80:3(IDX:0,2-3) "
    jobs = "\n".join(
        [slurm_job(1), slurm_job(2, "LSTM"), slurm_job(3, state="RUNNING", more=holds)]
    )
    queue = read_queue(NODES, jobs, workloads=("LSTM",))
    assert [node.id for node in queue.cluster.nodes] == ["n1", "n2", "n10"]
    assert queue.down == {"n2"}
    assert [queued.job.workload for queued in queue.jobs] == ["", "LSTM", ""]
    assert queue.jobs[2].holds == (("n10", "k80", (0, 2, 3)),)
    assert queue.jobs[2].job.gang == 3


@pytest.mark.parametrize(
    "name", ["x Account=vip", "x UserId=root(0)", "x JobState=RUNNING Reason=None"]
)
def test_job_name_cannot_forge_other_fields(name: str) -> None:
    queue = read_queue(NODES, f"{slurm_job(1, name)}\n{slurm_job(2)}")
    assert queue.unparsed == ("1",)
    assert [queued.job.id for queued in queue.jobs] == ["2"]


def test_node_lists_are_expanded() -> None:
    assert expand("n[08-10,12]-ib,m1") == ["n08-ib", "n09-ib", "n10-ib", "n12-ib", "m1"]


def test_csv_and_slurm_formats_agree() -> None:
    advised = [
        Advice(0, "7", "t", "runs", "v100", 1, (("n1", 1),), 0.5),
        Advice(1, "8", "evil\nscancel 1", "start", "v100", 2, (("n1", 1), ("n2", 1)), 1.0),
        Advice(2, "9", "t", "wait", "k80", 1, (), 0.25),
    ]
    rows = list(csv.DictReader(io.StringIO(formats.as_csv(advised))))
    assert [row["nodes"] for row in rows] == ["n1:1", "n1:1 n2:1", ""]
    queue = SlurmQueue(Cluster((Node("n1", ("v100",)),)), frozenset(), ())
    lines = [line for line in formats.as_slurm(advised, queue).splitlines() if line[0] != "#"]
    assert lines == [
        "scontrol update JobId=8 ReqNodeList=n1,n2 Priority=999999",
        "scontrol update JobId=9 Priority=999998",
    ]


def test_jobs_of_slurm_submitted_within_a_second_keep_their_order() -> None:
    jobs = "\n".join(
        slurm_job(number).replace(f"00:00:{number:02d}", "00:00:00") for number in (10, 9, 100, 8)
    )
    advised, _ = advise_slurm(NODES, jobs, "", "fifo", "gandiva-fair", None)
    assert [advice.job for advice in advised] == ["8", "9", "10", "100"]
