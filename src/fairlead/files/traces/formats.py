"""Formats of traces and logs, detected by the first line."""

from typing import Literal, get_args

from fairlead.files.parsing.text import SourceText
from fairlead.files.traces.gavel import is_gavel_trace

LogFormat = Literal["gavel", "philly", "itp", "sacct", "helios", "alibaba", "trace"]
LOG_FORMATS: tuple[LogFormat, ...] = get_args(LogFormat)


def detect_format(text: SourceText) -> LogFormat:
    """Return the format of a log; ``trace``, Fairlead's format, if no other is recognised."""
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
