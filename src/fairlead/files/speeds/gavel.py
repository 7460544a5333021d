"""Gavel's throughput JSON: accelerator → job type and gang → partner → steps per second."""

import re
from collections.abc import Callable
from typing import TypeVar

from fairlead.files.parsing import strict_json
from fairlead.files.parsing.fields import (
    accelerator,
    name,
    quoted,
    speed,
    whole,
)
from fairlead.files.parsing.text import Text, shortened
from fairlead.model.errors import InputError
from fairlead.model.speeds.table import Placement, SpeedKey

T = TypeVar("T")

_SPREAD = "_unconsolidated"
_ALONE = "null"
_TUPLE = re.compile(r"""\((['"])(.+)\1, *(\d{1,6})\)""")


def parse_gavel_speeds(text: Text) -> dict[SpeedKey, float]:
    """Return the speeds of a Gavel table: alone, and of both jobs of each pair."""
    document = strict_json.parse(text.body, source=text.name)
    found: dict[SpeedKey, float] = {}
    known: dict[str, tuple[str, int]] = {}
    try:
        for label, rows in strict_json.mapping(document).items():
            _accelerator(label, rows, known, found)
    except InputError as error:
        raise error.within(source=text.name) from None
    return found


def _accelerator(
    label: str,
    rows: object,
    known: dict[str, tuple[str, int]],
    found: dict[SpeedKey, float],
) -> None:
    placement: Placement = "spread" if label.endswith(_SPREAD) else "consolidated"
    device = _read(accelerator, label.removesuffix(_SPREAD), label)
    for own, entries in _read(strict_json.mapping, rows, label).items():
        workload, gang = _job_type(own, known)
        where = f"{quoted(label)}.{quoted(own)}"
        for other, measured in _read(strict_json.mapping, entries, where).items():
            if other == _ALONE:
                key = SpeedKey(workload, gang, device, placement)
                found[key] = _read(speed, measured, f"{where}.null")
                continue
            partner, partners_gang = _job_type(other, known)
            if partners_gang != gang:
                raise InputError(
                    f"a gang of {gang} cannot share devices with one of {partners_gang}",
                    fix="remove the entry",
                    field=f"{where}.{quoted(other)}",
                )
            if type(measured) is not list or len(measured) != 2:
                raise InputError(
                    f"{quoted(measured)} is not a pair of speeds",
                    fix="give [own, partner's]",
                    field=f"{where}.{quoted(other)}",
                )
            key = SpeedKey(workload, gang, device, placement, partner)
            speeds = [_read(speed, value, where) for value in measured]
            # Of two like jobs neither is the first, so both have the mean.
            found[key] = sum(speeds) / 2 if partner == workload else speeds[0]


def _job_type(text: str, known: dict[str, tuple[str, int]]) -> tuple[str, int]:
    """Return the workload and gang of a key such as ``('LM (batch size 5)', 2)``.

    Gavel's older tables of single devices have the job type alone as the key.
    """
    found = known.get(text)
    if found is None:
        match = _TUPLE.fullmatch(text)
        if match:
            found = _read(name, match[2], text), _read(whole, match[3], text)
        elif text.startswith("("):
            raise InputError(
                f"{quoted(text)} is not a job type",
                fix="write ('name', gang)",
            )
        else:
            found = _read(name, text, text), 1
        if found[1] < 1:
            raise InputError(f"{quoted(text)} has no devices", fix="give a gang of 1 or more")
        known[text] = found
    return found


def _read(read: Callable[[object], T], value: object, field: str) -> T:
    try:
        return read(value)
    except InputError as error:
        raise error.within(field=shortened(field)) from None
