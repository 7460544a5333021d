"""Microsoft's ITP logs (published with ElasticFlow): plain CSV, or a tar of one per cluster."""

import io
import tarfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import PurePosixPath

from fairlead.files.parsing.fields import name, number, whole_number
from fairlead.files.parsing.log_rows import (
    RowCells,
    not_negative,
    parse_rows,
    time_s,
)
from fairlead.files.parsing.table import read_table
from fairlead.files.parsing.text import MAX_BYTES, SourceText, decode
from fairlead.files.traces.workload_sampling import JobShape
from fairlead.model.errors import InputError
from fairlead.model.job import DEFAULT_TENANT

COLUMNS = ("job_id", "submission_time", "duration", "num_gpu")
WITH_MODELS = ("num_iteration", "model_name", "deadline", "batch_size")


def is_tar(data: bytes) -> bool:
    """Return whether the bytes are a tar archive."""
    return data[257:262] == b"ustar"


def unpack(data: bytes, source: str) -> list[tuple[str, SourceText]]:
    """Return the name (without .csv) and text of each CSV file in a tar, by name."""
    logs = []
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
            for member in archive:
                path = PurePosixPath(member.name)
                if member.isfile() and path.suffix == ".csv" and member.size <= MAX_BYTES:
                    held = archive.extractfile(member)
                    body = held.read() if held else b""
                    logs.append((name(path.stem), decode(body, f"{source}:{path.name}")))
    except InputError as error:
        raise error.within(source=source) from None
    except (tarfile.TarError, OSError, EOFError, ValueError, OverflowError):
        raise InputError(
            "damaged tar archive", fix="copy or download it again", source=source
        ) from None
    if not logs:
        raise InputError("no CSV files in the archive", fix="expected ITP's logs", source=source)
    return sorted(logs, key=lambda pair: pair[0])


def itp_shapes(
    text: SourceText, cluster: str = DEFAULT_TENANT
) -> Iterator[tuple[int, JobShape | None]]:
    """Yield line and shape of each job; None for jobs without GPUs and jobs that never ran.

    The log's cluster is the tenant. Arrivals stay in the log's time, which is the same for all
    clusters.
    """
    table = read_table(text, required=COLUMNS, optional=WITH_MODELS)
    for line, shape in parse_rows(table, _shape):
        yield line, shape and replace(shape, tenant=cluster)


def _shape(cells: RowCells) -> JobShape | None:
    n_devices = cells.read("num_gpu", not_negative(whole_number))
    duration_s = cells.read("duration", not_negative(number))
    if n_devices == 0 or duration_s == 0:
        return None
    arrival_s = cells.read("submission_time", time_s)
    deadline_s = None
    if cells.text("deadline"):
        deadline_s = cells.read("deadline", number) - arrival_s
        if deadline_s <= 0:
            raise InputError(
                "before submission_time", fix="expected a later time", field="deadline"
            )
    workload = cells.text("model_name")
    if workload and cells.text("batch_size"):
        workload += f" (batch size {cells.text('batch_size')})"
    return JobShape(
        id=cells.read("job_id", name),
        arrival_s=arrival_s,
        n_devices=n_devices,
        duration_s=duration_s,
        deadline_s=deadline_s,
        workload=workload or None,
    )
