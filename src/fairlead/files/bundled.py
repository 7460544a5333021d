"""The tables that come with Fairlead, read once."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from fairlead.files.parsing.fields import accelerator, name, number
from fairlead.files.parsing.table import read_table
from fairlead.files.parsing.text import Text
from fairlead.model.cluster import Accelerator

SPEEDS = {"gandiva-fair": "gandiva_fair_speeds.csv"}
DEFAULT_TRACE = "default_trace.csv"


@dataclass(frozen=True, slots=True)
class Packing:
    """What packing like jobs onto one P40 does to their common speed (Gandiva, Table 1)."""

    utilization: float
    """How busy one such job alone keeps the device, 0 to 1."""
    ratio: float
    """Mini-batches per second packed, over those of time-slicing: above 1 packing pays."""


def bundled_text(file: str) -> Text:
    """Return the text of a bundled file."""
    body = files("fairlead.data").joinpath(file).read_text(encoding="utf-8")
    return Text(f"bundled {file}", body)


@cache
def known_accelerators() -> Mapping[str, Accelerator]:
    """Return name in lower case → what is known of one device: memory, spot price."""
    columns = ("accelerator", "memory_gib", "usd_per_hour", "price_source")
    table = read_table(bundled_text("accelerators.csv"), required=columns)
    found = {}
    for label, memory, price, _ in table.rows:
        key = accelerator(label)
        found[key] = Accelerator(key, number(memory), number(price) if price else None)
    return found


def with_known(names: Iterable[str], given: Mapping[str, Accelerator]) -> dict[str, Accelerator]:
    """Return the details of each name: as given, else as known whatever the name's case."""
    found = {}
    for label in names:
        own = given.get(label, Accelerator(label))
        known = known_accelerators().get(label.lower(), Accelerator(label))
        memory = own.memory_gib if own.memory_gib is not None else known.memory_gib
        price = own.usd_per_hour if own.usd_per_hour is not None else known.usd_per_hour
        found[label] = Accelerator(label, memory, price)
    return found


@cache
def gandiva_packing() -> Mapping[str, Packing]:
    """Return workload → what packing does to it on a P40, as Gandiva measured it."""
    columns = ("workload", "utilization_percent", "time_slicing_per_s", "packing_per_s")
    table = read_table(
        bundled_text("gandiva_packing.csv"), required=columns, optional=("gain_percent",)
    )
    return {
        name(row[0]): Packing(number(row[1]) / 100, number(row[3]) / number(row[2]))
        for row in table.rows
    }
