"""Tables bundled with Fairlead, read once."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from fairlead.estimate.data_sheet import DataSheet
from fairlead.files.parsing.fields import accelerator, name, number, whole_number
from fairlead.files.parsing.table import read_table
from fairlead.files.parsing.text import SourceText
from fairlead.model.cluster import Accelerator

DEFAULT_TRACE = "default_trace.csv"
_SHEET_COLUMNS = (
    "accelerator",
    "year",
    "fp32_tflops",
    "matrix_tflops",
    "memory_gib",
    "memory_gb_s",
    "link_gb_s",
    "pcie",
    "source",
)


@dataclass(frozen=True, slots=True)
class BundledSpeeds:
    """A bundled speed table: its file, its source and the meaning of a step."""

    file: str
    source: str
    step: str


_MILLIONTH = "one millionth of the training run to the target quality"
SPEEDS: Mapping[str, BundledSpeeds] = {
    "gandiva-fair": BundledSpeeds(
        "gandiva_fair_speeds.csv", "Gandiva_fair (EuroSys 2020), Table 1", "one mini-batch"
    ),
    "mlperf-2020": BundledSpeeds(
        "mlperf_2020_speeds.csv", "logs of MLPerf Training v0.7, unverified", _MILLIONTH
    ),
    "mlperf-2023": BundledSpeeds(
        "mlperf_2023_speeds.csv", "logs of MLPerf Training v2.1 and v3.1, unverified", _MILLIONTH
    ),
    "mlperf-2025": BundledSpeeds(
        "mlperf_2025_speeds.csv", "logs of MLPerf Training v4.1 and v5.0, unverified", _MILLIONTH
    ),
    "h200": BundledSpeeds(
        "h200_speeds.csv", "our own models, measured in 2026 with 95 % intervals", "one mini-batch"
    ),
}
"""speed tables by the name that ``--speeds`` takes"""


@dataclass(frozen=True, slots=True)
class PackingGain:
    """Change of speed when equal jobs are packed onto one P40 (Gandiva, Table 1)."""

    utilization: float
    """utilisation of the device by one such job alone, 0 to 1"""
    ratio: float
    """mini-batches per second packed over time-sliced; above 1, packing pays"""


def bundled_text(file: str) -> SourceText:
    """Return the text of a bundled file."""
    body = files("fairlead.data").joinpath(file).read_text(encoding="utf-8")
    return SourceText(f"bundled {file}", body)


@cache
def known_accelerators() -> Mapping[str, Accelerator]:
    """Return name in lower case → memory and spot price of one device."""
    columns = ("accelerator", "memory_gib", "usd_per_hour", "price_source")
    table = read_table(bundled_text("accelerators.csv"), required=columns)
    details = {}
    for label, memory, price, _ in table.rows:
        key = accelerator(label)
        details[key] = Accelerator(key, number(memory), number(price) if price else None)
    return details


def with_known(names: Iterable[str], given: Mapping[str, Accelerator]) -> dict[str, Accelerator]:
    """Return name → details: the given ones, completed by the bundled ones in any case."""
    details = {}
    for label in names:
        own = given.get(label, Accelerator(label))
        known = known_accelerators().get(label.lower(), Accelerator(label))
        memory = own.memory_gib if own.memory_gib is not None else known.memory_gib
        price = own.usd_per_hour if own.usd_per_hour is not None else known.usd_per_hour
        details[label] = Accelerator(label, memory, price)
    return details


@cache
def gandiva_packing() -> Mapping[str, PackingGain]:
    """Return workload → gain from packing on a P40, as Gandiva measured it."""
    columns = ("workload", "utilization_percent", "time_slicing_per_s", "packing_per_s")
    table = read_table(
        bundled_text("gandiva_packing.csv"), required=columns, optional=("gain_percent",)
    )
    return {
        name(row[0]): PackingGain(number(row[1]) / 100, number(row[3]) / number(row[2]))
        for row in table.rows
    }


@cache
def data_sheets() -> Mapping[str, DataSheet]:
    """Return name in lower case → figures of one device as its vendor states them."""
    table = read_table(bundled_text("data_sheets.csv"), required=_SHEET_COLUMNS)
    sheets = {}
    for row in table.rows:
        label, year, fp32, matrix, memory, bandwidth, link, pcie, source = row
        sheets[accelerator(label)] = DataSheet(
            fp32_tflops=number(fp32),
            matrix_tflops=number(matrix) if matrix else number(fp32),
            memory_gib=number(memory),
            memory_gb_s=number(bandwidth),
            link_gb_s=number(link),
            pcie=whole_number(pcie),
            year=whole_number(year),
            source=source,
        )
    return sheets
