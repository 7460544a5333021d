"""Philly's log by virtual cluster: ``vc,seq,arrival_s,num_gpus,duration_s``, no workloads."""

from collections.abc import Iterator

from fairlead.files.parsing.fields import name, number, whole
from fairlead.files.parsing.log_rows import (
    Cells,
    positive,
    rows_of,
    time_s,
)
from fairlead.files.parsing.table import read_table
from fairlead.files.parsing.text import Text
from fairlead.files.traces.workload_sampling import JobShape

COLUMNS = ("vc", "seq", "arrival_s", "num_gpus", "duration_s")


def philly_shapes(text: Text) -> Iterator[tuple[int, JobShape]]:
    """Yield line and shape of each job; the virtual cluster is its tenant.

    Arrivals count from the first job of each virtual cluster, as in the log.
    """
    table = read_table(text, required=COLUMNS)
    yield from rows_of(table, _shape)


def _shape(cells: Cells) -> JobShape:
    tenant = cells.read("vc", name)
    return JobShape(
        id=f"{tenant}-{cells.read('seq', name)}",
        arrival_s=cells.read("arrival_s", time_s),
        n_devices=cells.read("num_gpus", positive(whole)),
        duration_s=cells.read("duration_s", positive(number)),
        tenant=tenant,
    )
