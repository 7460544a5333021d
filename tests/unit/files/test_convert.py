"""Logs of Gavel, Philly, ITP, Helios, Alibaba and Slurm as traces."""

import io
import tarfile
from collections import Counter
from pathlib import Path

import pytest
from tests.support.shared_data import needs_shared, shared

from fairlead.files import check_trace, read_cluster, read_speeds, read_trace
from fairlead.files.parsing.text import SourceText
from fairlead.files.speeds.table import parse_speeds
from fairlead.files.traces.convert import convert
from fairlead.files.traces.workload_sampling import (
    JobShape,
    WorkloadSampler,
    reference_accelerator,
)
from fairlead.model.errors import InputError, UsageError
from fairlead.model.speeds.table import SpeedTable

GAVEL_10 = (
    "LM\tpython3 main.py -b 1\tdir\t--steps\t1\t500\t2\t5\t-1.000000\t20\n"
    "GAN\tpython3 x.py\tdir\t-n\t0\t100\t1\t1\t2.0\t10\n"
)
GAVEL_7 = "LM\tcd %s && python3 main.py\t-step\t1\t95121\t6.000000\t4\n"
PHILLY = "vc,seq,arrival_s,num_gpus,duration_s\nx,0,0,1,100\nx,1,6,7,100\ny,0,0,64,50\n"
ITP = "job_id,submission_time,duration,num_gpu\nj1,500,100,8\nj0,400,60,1\n"
SACCT = """\
JobID|User|Account|Submit|Elapsed|AllocTRES|State
7|ann|vision|2026-03-01T10:00:05|1-00:00:10|cpu=8,gres/gpu:a100=2,gres/gpu=2,mem=9G|COMPLETED
7.batch|||2026-03-01T10:00:05|1-00:00:10|cpu=8,gres/gpu=2|COMPLETED
8_1|bob||2026-03-01T10:00:00|00:01:00|gres/gpu:a100=4|FAILED
9|bob|vision|2026-03-01T11:00:00|00:01:00|cpu=4|COMPLETED
10|bob|vision|2026-03-01T11:00:00|00:00:00|gres/gpu=1|CANCELLED by 5
"""


@pytest.fixture
def speeds() -> SpeedTable:
    rows = "".join(
        f"{workload},{gang},{accelerator},{per_s}\n"
        for workload, gangs in (("LM", (1, 2, 4, 8)), ("GAN", (1,)))
        for gang in gangs
        for accelerator, per_s in (("v100", 2 * gang), ("k80", gang))
    )
    return parse_speeds(SourceText("table", "workload,gang,accelerator,steps_per_s\n" + rows))


def put(tmp_path: Path, body: str, name: str = "log.csv") -> Path:
    path = tmp_path / name
    path.write_text(body)
    return path


def test_gavels_ten_columns_give_weight_gang_and_deadline(
    tmp_path: Path, speeds: SpeedTable
) -> None:
    gan, lm = convert(put(tmp_path, GAVEL_10), speeds).trace
    assert (lm.id, lm.workload, lm.total_steps, lm.gang) == ("0", "LM", 500, 2)
    assert (lm.weight, lm.arrival_at, lm.deadline_s) == (5, 20, None)
    # Gavel's SLO is a multiple of the duration on a V100: 2 × 100 steps / 2 per second.
    assert (gan.id, gan.deadline_s) == ("1", 100)


def test_gangs_of_gavels_logs_stay_and_cannot_be_bounded(
    tmp_path: Path, speeds: SpeedTable
) -> None:
    log = put(tmp_path, GAVEL_7.replace("\t4\n", "\t3\n"), "x.trace")
    assert convert(log, speeds).trace[0].gang == 3
    with pytest.raises(UsageError, match=r"--max-gang: not supported for a Gavel log"):
        convert(log, speeds, max_gang=1)


def test_gavels_seven_columns_read_as_a_trace_too(tmp_path: Path) -> None:
    (job,) = read_trace(put(tmp_path, GAVEL_7, "x.trace"))
    assert (job.workload, job.total_steps, job.arrival_at, job.gang) == ("LM", 95121, 6, 4)


def test_a_deadline_of_gavel_needs_a_conversion_with_speeds(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="fairlead trace convert") as caught:
        read_trace(put(tmp_path, GAVEL_10))
    assert caught.value.line == 2


def test_an_unknown_log_is_refused_with_the_known_formats(
    tmp_path: Path, speeds: SpeedTable
) -> None:
    with pytest.raises(InputError, match=r"unknown log format.*gavel, philly, itp, sacct"):
        convert(put(tmp_path, "name,time,application\na,0,bert\n"), speeds)


def test_philly_makes_tenants_of_virtual_clusters(tmp_path: Path, speeds: SpeedTable) -> None:
    trace = convert(put(tmp_path, PHILLY), speeds).trace
    assert {job.id: job.tenant for job in trace} == {"x-0": "x", "x-1": "x", "y-0": "y"}


def test_a_gang_without_speeds_keeps_its_device_hours(tmp_path: Path, speeds: SpeedTable) -> None:
    jobs = {job.id: job for job in convert(put(tmp_path, PHILLY), speeds).trace}
    for label, device_s, gang in (("x-1", 7 * 100, 4), ("y-0", 64 * 50, 8)):
        job = jobs[label]
        assert (job.workload, job.gang) == ("LM", gang)
        assert job.gang * job.total_steps / (2 * gang) == pytest.approx(device_s)


def test_one_virtual_cluster_converts_like_the_whole_log(
    tmp_path: Path, speeds: SpeedTable
) -> None:
    path = put(tmp_path, PHILLY)
    expected = [job for job in convert(path, speeds).trace if job.tenant == "x"]
    assert list(convert(path, speeds, tenant="x").trace) == expected


def test_an_unknown_virtual_cluster_is_refused(tmp_path: Path, speeds: SpeedTable) -> None:
    with pytest.raises(InputError, match="unknown tenant 'z'"):
        convert(put(tmp_path, PHILLY), speeds, tenant="z")


@pytest.mark.parametrize(
    ("log", "rows"),
    [(PHILLY, "z,0,60,0,100\nz,1,60,1,0\n"), (ITP, "j2,100,100,0\nj3,90,0,1\n")],
)
def test_rows_that_used_no_gpu_or_never_ran_are_left_out_and_counted(
    tmp_path: Path, speeds: SpeedTable, log: str, rows: str
) -> None:
    converted = convert(put(tmp_path, log + rows), speeds)
    assert converted.left_out == 2
    assert list(converted.trace) == list(convert(put(tmp_path, log), speeds).trace)


def test_the_seed_changes_only_workloads(tmp_path: Path) -> None:
    rows = "".join(f"x,{i},{i},1,100\n" for i in range(50))
    path = put(tmp_path, PHILLY.splitlines()[0] + "\n" + rows)
    table = read_speeds("gandiva-fair")
    first, same, other = (convert(path, table, seed=seed).trace for seed in (1, 1, 2))
    assert first == same
    assert [job.workload for job in first] != [job.workload for job in other]
    assert [job.arrival_at for job in first] == [job.arrival_at for job in other]
    assert set(Counter(job.workload for job in first)) == set(table.workloads)


def test_itp_counts_arrivals_from_the_first(tmp_path: Path, speeds: SpeedTable) -> None:
    trace = convert(put(tmp_path, ITP, "cluster07.csv"), speeds).trace
    assert [(j.id, j.arrival_at, j.gang, j.tenant) for j in trace] == [
        ("j0", 0, 1, "cluster07"),
        ("j1", 100, 8, "cluster07"),
    ]


def test_itp_logs_keep_known_models_and_deadlines(tmp_path: Path, speeds: SpeedTable) -> None:
    body = (
        "job_id,submission_time,num_iteration,model_name,deadline,batch_size,num_gpu,duration\n"
        "a,10,5,GAN,110,,1,60\nb,10,5,bert,20,64,1,60\n"
    )
    first, second = convert(put(tmp_path, body), speeds).trace
    assert (first.workload, first.deadline_s) == ("GAN", 100)
    assert second.workload in ("LM", "GAN")


def test_itp_reads_a_tar_of_clusters(tmp_path: Path, speeds: SpeedTable) -> None:
    path = tmp_path / "logs.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for name, body in (
            ("./cluster02.csv", ITP.replace("j", "k").replace("kob", "job")),
            ("./cluster01.csv", ITP),
            ("./LICENSE", "no log"),
        ):
            member = tarfile.TarInfo(name)
            member.size = len(body)
            archive.addfile(member, io.BytesIO(body.encode()))
    converted = convert(path, speeds)
    assert converted.form == "itp"
    assert Counter(job.tenant for job in converted.trace) == {"cluster01": 2, "cluster02": 2}
    assert len(convert(path, speeds, tenant="cluster01").trace) == 2


def test_a_truncated_tar_is_refused(tmp_path: Path, speeds: SpeedTable) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        member = tarfile.TarInfo("cluster01.csv")
        member.size = 5000
        archive.addfile(member, io.BytesIO(b"x" * 5000))
    path = tmp_path / "logs.tar"
    path.write_bytes(buffer.getvalue()[:1500])
    with pytest.raises(InputError, match="damaged"):
        convert(path, speeds)


def test_sacct_gives_jobs_that_ran_on_gpus(tmp_path: Path, speeds: SpeedTable) -> None:
    converted = convert(put(tmp_path, SACCT), speeds)
    assert converted.left_out == 3
    assert [(j.id, j.arrival_at, j.gang, j.duration_s, j.tenant) for j in converted.trace] == [
        ("8_1", 0, 4, 60, "bob"),
        ("7", 5, 2, 86410, "vision"),
    ]


HELIOS = """\
job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue
12,ua,vcx,4,16,1,FAILED,2020-06-09 18:41:27,2020-06-09 18:41:27,2020-06-09 18:45:36,249,0
11,ub,vcy,1,1,1,COMPLETED,2020-06-09 18:41:01,2020-06-09 18:41:01,2020-06-10 04:55:09,36848,0
13,ub,vcy,0,8,1,COMPLETED,2020-06-09 18:41:28,2020-06-09 18:41:28,2020-06-09 18:41:29,1,0
14,ub,vcy,8,8,1,CANCELLED,2020-06-09 18:41:28,,,0,0
"""
ALIBABA = """\
name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time
a,12000,16384,2,1000,,LS,Running,100,1100,200
b,6000,12288,1,460,V100M16|T4,BE,Running,150,450,150
c,6000,12288,1,1000,A10,BE,Running,160,460,160
d,6000,12288,1,460,,BE,Pending,170,,
e,6000,12288,0,0,,BE,Running,180,900,190
"""


def test_helios_gives_jobs_that_ran_on_gpus(tmp_path: Path, speeds: SpeedTable) -> None:
    converted = convert(put(tmp_path, HELIOS), speeds)
    assert (converted.form, converted.left_out) == ("helios", 2)
    assert [(j.id, j.arrival_at, j.gang, j.duration_s, j.tenant) for j in converted.trace] == [
        ("11", 0, 1, 36848, "vcy"),
        ("12", 26, 4, 249, "vcx"),
    ]


def test_alibabas_pods_keep_their_fraction_of_a_gpu_and_their_gpu_models(
    tmp_path: Path, speeds: SpeedTable
) -> None:
    converted = convert(put(tmp_path, ALIBABA), speeds)
    assert (converted.form, converted.left_out) == ("alibaba", 2)
    assert [(j.id, j.arrival_at, j.gang, j.duration_s, j.tenant) for j in converted.trace] == [
        ("a", 0, 2, 1000 - 100, "LS"),
        ("b", 50, 1, 300, "BE"),
        ("c", 60, 1, 300, "BE"),
    ]
    assert [j.utilization for j in converted.trace] == [None, 0.46, None]
    assert [j.accelerators for j in converted.trace] == [None, ("v100",), None]


def test_the_same_id_in_two_rows_is_refused(tmp_path: Path, speeds: SpeedTable) -> None:
    with pytest.raises(InputError, match="line 2") as caught:
        convert(put(tmp_path, ITP.replace("j0", "j1")), speeds)
    assert caught.value.line == 3


def test_the_reference_is_v100_or_the_fastest_accelerator(speeds: SpeedTable) -> None:
    assert reference_accelerator(speeds) == "v100"
    head = "workload,gang,accelerator,steps_per_s\n"
    rows = "a,1,slow,1000\na,1,fast,1001\nb,1,slow,1\nb,1,fast,9\n"
    table = parse_speeds(SourceText("table", head + rows))
    assert reference_accelerator(table) == "fast"
    with pytest.raises(InputError, match="'fats'"):
        reference_accelerator(table, "fats")


def test_max_gang_bounds_the_gangs_of_any_table() -> None:
    sampler = WorkloadSampler(read_speeds("gandiva-fair"), max_gang=4)
    job = sampler.job(JobShape("a", 0.0, n_devices=64, duration_s=10.0))
    assert (job.gang, job.duration_s) == (4, 160)


@needs_shared
@pytest.mark.parametrize(
    ("path", "form", "n_jobs"),
    [
        ("philly_via_gavel/philly_vc_jobs.csv.gz", "philly", 12_731),
        ("elasticflow_itp/195job.csv.gz", "itp", 195),
        ("elasticflow_itp/cluster10_with_models.csv.gz", "itp", 260),
        ("elasticflow_itp/raw-traces.tar.gz", "itp", 53_549),
        ("gavel/physical_traces/max_min_fairness.trace", "gavel", 96),
        ("gavel/msr_seed0/ee9e8c.trace.gz", "gavel", 2000),
    ],
)
def test_published_logs_convert_completely(path: str, form: str, n_jobs: int) -> None:
    table = read_speeds(shared("data/gavel/simulation_throughputs.json.gz"))
    converted = convert(shared(f"data/{path}"), table)
    assert (converted.form, len(converted.trace), converted.left_out) == (form, n_jobs, 0)
    assert converted.trace[0].arrival_at == 0
    if form != "gavel":  # the older Gavel traces have gangs that its later table lacks
        check_trace(converted.trace, table, read_cluster("v100=8,p100=8,k80=8"))


@needs_shared
def test_the_published_pod_list_converts_without_pods_that_never_ran(speeds: SpeedTable) -> None:
    converted = convert(shared("data/alibaba_v2023_openb/openb_pod_list_gpuspec33.csv.gz"), speeds)
    assert (converted.form, len(converted.trace), converted.left_out) == ("alibaba", 6_203, 1_949)
