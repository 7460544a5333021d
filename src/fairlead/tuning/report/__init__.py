"""Report of a search on a server: one page with its figures, and its learning curves as data."""

from pathlib import Path

from fairlead.client import Client
from fairlead.files.parsing.text import write_text
from fairlead.files.recorded_curves import write_curves
from fairlead.model.errors import InputError
from fairlead.tuning.controller import SearchResult
from fairlead.tuning.report.page import search_page
from fairlead.tuning.report.record import read_record


def make_folder(folder: Path) -> None:
    """Create the folder of a report; InputError if that is impossible."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        fix = "expected a folder that can be written"
        raise InputError(f"{folder}: {error.strerror}", fix=fix, field="plot") from None


def write_report(server: Client, result: SearchResult, folder: Path) -> list[Path]:
    """Write ``search.html`` and ``curves.json``; return their paths."""
    record = read_record(server, result)
    make_folder(folder)
    page, curves = folder / "search.html", folder / "curves.json"
    write_text(page, search_page(record))
    values = [(trial.point, [p.value for p in trial.reports]) for trial in record.trials]
    write_curves(curves, record.search, record.report_s, values)
    return [page, curves]
