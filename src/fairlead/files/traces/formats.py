"""Which system wrote a trace or log, told by its first line."""

from typing import Literal, get_args

from fairlead.files.parsing.text import Text
from fairlead.files.traces.gavel import is_gavel_trace

Form = Literal["gavel", "philly", "itp", "sacct", "helios", "alibaba", "trace"]
LOG_FORMATS: tuple[Form, ...] = get_args(Form)


def detect_format(text: Text) -> Form:
    """Return which system's log a text is; ``trace``, our own form, when none is recognised."""
    if is_gavel_trace(text):
        return "gavel"
    first = text.body.lstrip().partition("\n")[0][:1000]
    if "JobID" in first.split("|"):
        return "sacct"
    columns = {cell.strip() for cell in first.split(",")}
    if {"vc", "num_gpus"} <= columns:
        return "philly"
    if {"submission_time", "num_gpu"} <= columns:
        return "itp"
    if {"vc", "gpu_num", "submit_time"} <= columns:
        return "helios"
    if {"num_gpu", "gpu_milli"} <= columns:
        return "alibaba"
    return "trace"
