"""Workloads of jobs that name none: script and arguments, without what does not matter."""

import pytest

from fairlead.estimate.cells import workload_name
from fairlead.live.job_spec import JobSpec
from fairlead.model.submission.new_job import NewJob
from fairlead.model.submission.workload import MAX_LENGTH, workload_of_command


@pytest.mark.parametrize(
    ("command", "workload"),
    [
        ("train.py --arch a --batch-size 32 --seed 3", "nlp/train.py --arch a (batch size 32)"),
        ("train.py --lr=0.1 --fp16 --layers 12", "nlp/train.py --fp16 --layers 12"),
        ("python3 -u /home/ann/gan/train.py cifar -2", "gan/train.py cifar -2"),
        ("torchrun --nproc-per-node 2 ./train.py --bs=8", "nlp/train.py (batch size 8)"),
        ("python -m vision.train --data /data/imagenet/", "vision.train --data imagenet"),
        ("train.py --api-key sk-123 --wandb-token t --resume", "nlp/train.py"),
        ("train.py --batch-size many", "nlp/train.py --batch-size many"),
        ("/usr/bin/true", "true"),
    ],
)  # fmt: skip
def test_script_and_arguments_name_the_workload(command: str, workload: str) -> None:
    assert workload_of_command(command.split(), "/home/ann/nlp") == workload


def test_names_that_are_too_long_stay_distinct_and_keep_their_batch_size() -> None:
    texts = [f"train.py {'x' * 500}{end} --batch-size 64" for end in "ab"]
    names = [workload_of_command(text.split()) for text in texts]
    assert names[0] != names[1]
    assert {len(name) for name in names} == {MAX_LENGTH}
    assert {workload_name(name).batch_size for name in names} == {64}


def test_a_job_keeps_the_workload_that_it_names() -> None:
    new = NewJob(command=("a\n\x1fb", "\x7f"), workload="mine")
    assert JobSpec.of(new, "t").workload == "mine"
    unnamed = JobSpec.of(NewJob(command=new.command), "t").workload
    assert unnamed == "a b"
