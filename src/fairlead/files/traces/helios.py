"""Helios' cluster log (``cluster_log.csv``), from its Slurm accounting."""

from collections.abc import Iterator

from fairlead.files.parsing.fields import name, number, whole_number
from fairlead.files.parsing.log_rows import (
    RowCells,
    date_time_s,
    not_negative,
    parse_rows,
)
from fairlead.files.parsing.table import read_table
from fairlead.files.parsing.text import SourceText
from fairlead.files.traces.workload_sampling import JobShape

COLUMNS = ("job_id", "vc", "gpu_num", "submit_time", "duration")
OTHERS = ("user", "cpu_num", "node_num", "state", "start_time", "end_time", "queue")


def helios_shapes(text: SourceText) -> Iterator[tuple[int, JobShape | None]]:
    """Yield line and shape of each job; None for jobs without GPUs and jobs that never ran.

    The virtual cluster is the tenant.
    """
    yield from parse_rows(read_table(text, required=COLUMNS, optional=OTHERS), _shape)


def _shape(cells: RowCells) -> JobShape | None:
    n_devices = cells.read("gpu_num", not_negative(whole_number))
    duration_s = cells.read("duration", not_negative(number))
    if n_devices == 0 or duration_s == 0:
        return None
    return JobShape(
        id=cells.read("job_id", name),
        arrival_s=cells.read("submit_time", date_time_s),
        n_devices=n_devices,
        duration_s=duration_s,
        tenant=cells.read("vc", name),
    )
