"""Philly's log by virtual cluster: ``vc,seq,arrival_s,num_gpus,duration_s``, no workloads."""

from collections.abc import Iterator

from fairlead.files.parsing.fields import name, number, whole_number
from fairlead.files.parsing.log_rows import (
    RowCells,
    not_negative,
    parse_rows,
    time_s,
)
from fairlead.files.parsing.table import read_table
from fairlead.files.parsing.text import SourceText
from fairlead.files.traces.workload_sampling import JobShape

COLUMNS = ("vc", "seq", "arrival_s", "num_gpus", "duration_s")


def philly_shapes(text: SourceText) -> Iterator[tuple[int, JobShape | None]]:
    """Yield line and shape of each job; None for jobs without GPUs and jobs that never ran.

    The virtual cluster is the tenant. Arrivals count from the first job of each virtual cluster,
    as in the log.
    """
    table = read_table(text, required=COLUMNS)
    yield from parse_rows(table, _shape)


def _shape(cells: RowCells) -> JobShape | None:
    n_devices = cells.read("num_gpus", not_negative(whole_number))
    duration_s = cells.read("duration_s", not_negative(number))
    if n_devices == 0 or duration_s == 0:
        return None
    tenant = cells.read("vc", name)
    return JobShape(
        id=f"{tenant}-{cells.read('seq', name)}",
        arrival_s=cells.read("arrival_s", time_s),
        n_devices=n_devices,
        duration_s=duration_s,
        tenant=tenant,
    )
