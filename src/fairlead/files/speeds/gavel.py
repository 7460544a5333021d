"""Gavel's throughput JSON: accelerator → job type and gang → partner → steps per second."""

import re
from collections.abc import Callable
from typing import TypeVar

from fairlead.files.parsing import strict_json
from fairlead.files.parsing.fields import (
    accelerator,
    name,
    quote,
    speed,
    whole_number,
)
from fairlead.files.parsing.text import SourceText, shorten
from fairlead.model.errors import InputError
from fairlead.model.speeds.table import Consolidation, SpeedKey

T = TypeVar("T")

_SPREAD = "_unconsolidated"
_ALONE = "null"
_TUPLE = re.compile(r"""\((['"])(.+)\1, *(\d{1,6})\)""")


def parse_gavel_speeds(text: SourceText) -> dict[SpeedKey, float]:
    """Return the speeds of a Gavel table: alone, and of both jobs of each pair."""
    document = strict_json.parse(text.body, source=text.name)
    speeds: dict[SpeedKey, float] = {}
    known: dict[str, tuple[str, int]] = {}
    try:
        for label, rows in strict_json.mapping(document).items():
            _accelerator(label, rows, known, speeds)
    except InputError as error:
        raise error.within(source=text.name) from None
    return speeds


def _accelerator(
    label: str,
    rows: object,
    known: dict[str, tuple[str, int]],
    speeds: dict[SpeedKey, float],
) -> None:
    placement: Consolidation = "spread" if label.endswith(_SPREAD) else "consolidated"
    device = _read(accelerator, label.removesuffix(_SPREAD), label)
    for own, entries in _read(strict_json.mapping, rows, label).items():
        workload, gang = _job_type(own, known)
        for other, measured in _row(entries, label, own).items():
            if other == _ALONE:
                key = SpeedKey(workload, gang, device, placement)
                speeds[key] = _read(speed, measured, f"{_place(label, own)}.null")
                continue
            partner, partners_gang = known.get(other) or _job_type(other, known)
            if partners_gang != gang:
                raise InputError(
                    f"gangs of {gang} and {partners_gang} cannot share devices",
                    fix="remove the entry",
                    field=_place(label, own, other),
                )
            if type(measured) is not list or len(measured) != 2:
                raise InputError(
                    f"not a pair of speeds: {quote(measured)}",
                    fix="expected [own, partner's]",
                    field=_place(label, own, other),
                )
            key = SpeedKey(workload, gang, device, placement, partner)
            try:
                first, second = map(speed, measured)
            except InputError as error:
                raise error.within(field=shorten(_place(label, own))) from None
            # Two equal jobs have no order, so both get the mean.
            speeds[key] = (first + second) / 2 if partner == workload else first


def _row(entries: object, label: str, own: str) -> dict[str, object]:
    try:
        return strict_json.mapping(entries)
    except InputError as error:
        raise error.within(field=shorten(_place(label, own))) from None


def _place(*keys: str) -> str:
    return ".".join(map(quote, keys))


def _job_type(text: str, known: dict[str, tuple[str, int]]) -> tuple[str, int]:
    """Return the workload and gang of a key such as ``('LM (batch size 5)', 2)``.

    Gavel's older tables of single devices have only the job type as the key.
    """
    job_type = known.get(text)
    if job_type is None:
        match = _TUPLE.fullmatch(text)
        if match:
            job_type = _read(name, match[2], text), _read(whole_number, match[3], text)
        elif text.startswith("("):
            raise InputError(
                f"not a job type: {quote(text)}",
                fix="expected ('name', gang)",
            )
        else:
            job_type = _read(name, text, text), 1
        if job_type[1] < 1:
            raise InputError(f"no devices: {quote(text)}", fix="expected a gang of 1 or more")
        known[text] = job_type
    return job_type


def _read(read: Callable[[object], T], value: object, field: str) -> T:
    try:
        return read(value)
    except InputError as error:
        raise error.within(field=shorten(field)) from None
