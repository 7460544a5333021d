"""Recorded learning curves of a search, as JSON: data for simulated searches.

``{"metric": …, "report_s": …, "trials": [{"parameters": {…}, "values": […]}, …]}``: every trial
has reported its metric equally often, ``report_s`` apart.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import numpy as np

from fairlead.files.parsing import strict_json
from fairlead.files.parsing.fields import name, number, quote, seconds
from fairlead.files.parsing.text import SourceText, read_text, shorten, write_text
from fairlead.model.arrays import FloatArray
from fairlead.model.errors import InputError, require
from fairlead.model.submission.search import MAX_TRIALS, Direction, Search, Value

_NOTES = ("made_by", "data")
"""members about the origin of the curves, which nothing reads"""


@dataclass(frozen=True, slots=True, eq=False)
class RecordedCurves:
    """Learning curves of the trials of a search that ran to their ends."""

    metric: str
    values: FloatArray
    """trials × reports"""
    parameters: Sequence[Mapping[str, Value]]
    """trial → hyperparameters"""
    direction: Direction = "maximize"
    report_s: float = 60.0
    """seconds of training between two reports, on the fastest accelerator"""
    workload: str | None = None
    """workload whose relative speeds the trials have; None: all accelerators are equally fast"""
    target: float | None = None
    """value of the metric that a qualified configuration reaches"""

    @property
    def sign(self) -> float:
        """1 if large values of the metric are good, else -1."""
        return 1.0 if self.direction == "maximize" else -1.0


def read_curves(path: str | Path) -> RecordedCurves:
    """Return the learning curves of a JSON file, gzipped or not."""
    return parse_curves(read_text(path))


def parse_curves(text: SourceText) -> RecordedCurves:
    """Return the learning curves of a JSON text."""
    document = strict_json.parse(text.body, source=text.name)
    try:
        return _curves(document)
    except InputError as error:
        raise error.within(source=text.name) from None


def _curves(document: object) -> RecordedCurves:
    required = ("metric", "trials")
    top = strict_json.members(document, required=required, optional=(*_READERS, *_NOTES))
    values: dict[str, Any] = {}
    for field, read in _READERS.items():
        if field in top:
            try:
                values[field] = read(top[field])
            except InputError as error:
                raise error.within(field=field) from None
    curves, parameters = _trials(top["trials"])
    return RecordedCurves(values=np.array(curves), parameters=parameters, **values)


def _trials(value: object) -> tuple[list[list[float]], list[dict[str, Value]]]:
    """Return trial → values of its reports, and trial → its hyperparameters."""
    rows = strict_json.array(value)
    require(1 <= len(rows) <= MAX_TRIALS, "trials", len(rows), f"1 to {MAX_TRIALS:,} trials")
    curves, parameters = [], []
    for index, row in enumerate(rows):
        try:
            trial = strict_json.members(row, required=("values",), optional=("parameters",))
            curves.append([number(entry) for entry in strict_json.array(trial["values"])])
            parameters.append(_parameters(trial.get("parameters", {})))
        except InputError as error:
            raise InputError(error.problem, fix=error.fix, field=f"trials[{index}]") from None
    reports = max(len(curve) for curve in curves)
    for index, curve in enumerate(curves):
        if len(curve) < max(reports, 1):
            fix = "expected trials that ran to their ends, as with `strategy: none`"
            problem = f"{len(curve)} values, others have {reports}"
            raise InputError(problem, fix=fix, field=f"trials[{index}]")
    return curves, parameters


def _parameters(value: object) -> dict[str, Value]:
    parameters: dict[str, Value] = {}
    for label, entry in strict_json.mapping(value).items():
        if not isinstance(entry, str | int | float):
            fix = "expected a text or a number"
            raise InputError(f"parameters: {shorten(label)}: {quote(entry)}", fix=fix)
        parameters[label] = entry
    return parameters


def _direction(value: object) -> object:
    known = get_args(Direction)
    require(value in known, "direction", value, " or ".join(known))
    return value


def _report_s(value: object) -> float:
    report_s = seconds(value)
    require(report_s > 0, "report_s", report_s, "above 0")
    return report_s


_READERS: Mapping[str, Callable[[object], Any]] = {
    "metric": name,
    "direction": _direction,
    "report_s": _report_s,
    "workload": name,
    "target": number,
}


def write_curves(
    path: Path,
    search: Search,
    report_s: float,
    trials: Iterable[tuple[Mapping[str, Value], Sequence[float]]],
) -> None:
    """Write the hyperparameters and values of trials; those of stopped ones may be fewer."""
    written = {
        "metric": search.metric,
        "direction": search.direction,
        "target": search.target,
        "report_s": report_s,
        "trials": [{"parameters": dict(point), "values": list(v)} for point, v in trials],
    }
    write_text(path, json.dumps(written, separators=(",", ":")) + "\n")
