"""Bad cluster logs and jobs that no device can hold: one error with the field."""

from pathlib import Path

import pytest
from tests.unit.files.refusal import refused

from fairlead.files import (
    check_trace,
    read_cluster,
    read_speeds,
    read_trace,
)
from fairlead.files.traces.convert import convert
from fairlead.model.errors import InputError

HEAD = "job_id,arrival_s,workload,gang,total_steps\n"
GOOD = "a,0,w,1,10\n"
LINE = '{"job_id": "a", "arrival_s": 0, "workload": "w", "gang": 1, "total_steps": 5}\n'
SPEEDS = "workload,gang,accelerator,steps_per_s\n"
Bytes = bytes | str


ALIBABA = "name,num_gpu,gpu_milli,creation_time,deletion_time,scheduled_time\n"


@pytest.mark.parametrize(
    ("form", "data", "field"),
    [
        ("philly", "vc,seq,arrival_s,num_gpus,duration_s\nx,0,0,-1,5\n", "num_gpus"),
        ("philly", "vc,seq,arrival_s,num_gpus,duration_s\nx,0,0,0,5\n", None),
        ("philly", "vc,seq,arrival_s,num_gpus,duration_s\nx,0,-1,1,5\n", "arrival_s"),
        ("philly", "vc,seq,arrival_s,num_gpus\nx,0,0,1\n", "duration_s"),
        ("itp", "job_id,submission_time,duration,num_gpu\na,0,-1,1\n", "duration"),
        ("itp", "job_id,submission_time,duration,num_gpu\na,0,0,1\n", None),
        ("itp", "job_id,submission_time,duration\na,0,5\n", "num_gpu"),
        ("sacct", "JobID|Submit|ElapsedRaw\n1|2026-01-01T00:00:00|5\n", "AllocTRES"),
        ("sacct", "JobID|Submit|ElapsedRaw|AllocTRES\n1|noon|5|gres/gpu=1\n", "Submit"),
        ("sacct", "JobID|Submit|Elapsed|AllocTRES\n1|2026-01-01|5|gres/gpu=1\n", "Elapsed"),
        ("sacct", "JobID|Submit|ElapsedRaw|AllocTRES\n1|2026-01-01|5\n", None),
        ("sacct", "JobID|Submit|ElapsedRaw|AllocTRES\n1|2026-01-01|5|cpu=1\n", None),
        ("helios", "job_id,vc,gpu_num,submit_time,duration\n1,v,1,noon,5\n", "submit_time"),
        ("helios", "job_id,vc,gpu_num,submit_time,duration\n1,v,-1,2020-06-09,5\n", "gpu_num"),
        ("alibaba", ALIBABA + "a,1,1001,0,9,3\n", "gpu_milli"),
        ("alibaba", ALIBABA + "a,1,1000,0,3,9\n", "deletion_time"),
        ("gavel", "w\tc\t-n\t1\tten\t0\t1\n", "total_steps"),
        ("gavel", "w\tc\td\t-n\t1\t10\t1\tx\t-1\t0\n", "priority_weight"),
        ("gavel", "w\tc\n", None),
    ],
)
def test_bad_log_is_one_error(tmp_path: Path, form: str, data: str, field: str | None) -> None:
    speeds = read_speeds("gandiva-fair")
    error = refused(
        tmp_path,
        lambda path: convert(path, speeds, form=form),  # type: ignore[arg-type]  # a form's name
        data,
        ".log",
    )
    assert error.field == field


@pytest.mark.parametrize(
    "head",
    ["vc,seq,arrival_s,num_gpus,duration_s", "JobID|Submit", "job_id,submission_time,num_gpu"],
)
def test_reading_a_log_as_a_trace_hints_at_the_conversion(tmp_path: Path, head: str) -> None:
    error = refused(tmp_path, read_trace, head + "\n1\n", ".csv")
    assert "fairlead trace convert" in error.fix


def test_job_that_needs_more_memory_than_any_device_has_is_refused_with_its_line(
    tmp_path: Path,
) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("job_id,arrival_s,workload,gang,total_steps,memory_gib\na,0,VAE,1,9,99\n")
    with pytest.raises(InputError, match=r"trace\.csv:2: memory_gib.*99 GiB"):
        check_trace(read_trace(path), read_speeds("gandiva-fair"), read_cluster("v100=2,k80=2"))
