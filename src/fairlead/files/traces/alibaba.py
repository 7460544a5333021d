"""Alibaba's pod list (``openb_pod_list_*.csv`` of 2023): GPUs are shared in thousandths."""

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
from fairlead.model.errors import InputError
from fairlead.model.job import DEFAULT_TENANT

COLUMNS = ("name", "num_gpu", "gpu_milli", "creation_time", "deletion_time", "scheduled_time")
OTHERS = ("cpu_milli", "memory_mib", "gpu_spec", "qos", "pod_phase")


def alibaba_shapes(text: SourceText) -> Iterator[tuple[int, JobShape | None]]:
    """Yield line and shape of each pod; None for pods without GPUs and pods that never ran.

    The class of service is the tenant. A fraction of a GPU is the job's utilisation; the GPUs in
    ``gpu_spec`` are those that it may use.
    """
    yield from parse_rows(read_table(text, required=COLUMNS, optional=OTHERS), _shape)


def _shape(cells: RowCells) -> JobShape | None:
    n_devices = cells.read("num_gpu", not_negative(whole_number))
    arrival_s = cells.read("creation_time", time_s)
    if n_devices == 0 or not cells.text("scheduled_time") or not cells.text("deletion_time"):
        return None
    duration_s = cells.read("deletion_time", number) - cells.read("scheduled_time", number)
    if duration_s < 0:
        raise InputError(
            "deleted before scheduled_time", fix="expected a later time", field="deletion_time"
        )
    if duration_s == 0:
        return None
    return JobShape(
        id=cells.read("name", name),
        arrival_s=arrival_s,
        n_devices=n_devices,
        duration_s=duration_s,
        tenant=cells.read("qos", name) if cells.text("qos") else DEFAULT_TENANT,
        utilization=cells.read("gpu_milli", _thousandths),
        models=tuple(filter(None, cells.text("gpu_spec").split("|"))),
    )


def _thousandths(value: object) -> float | None:
    """Return the requested fraction of a GPU, None for a whole one."""
    milli = not_negative(whole_number)(value)
    if milli > 1000:
        raise InputError(f"more than a GPU: {milli}", fix="expected at most 1000")
    return milli / 1000 if 0 < milli < 1000 else None
