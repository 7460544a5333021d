"""Process of one simulation: ``python -m fairlead.server.simulations.process FOLDER``.

Reads ``request.json`` of the folder and writes ``result.json`` and ``report.html``. Exits when its
standard input is closed, and so with the server.
"""

import json
import os
import resource
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from fairlead.atomic_file import replace_text
from fairlead.model.errors import FairleadError
from fairlead.server.simulations.request import SimulationRequest
from fairlead.sim.compare import Outcome, compare
from fairlead.sim.report.means import KEY_FIGURES, key_rows
from fairlead.sim.report.page import report

REQUEST, PROGRESS, RESULT, REPORT = "request.json", "progress.json", "result.json", "report.html"
MAX_CPU_S, MAX_MEMORY_BYTES, MAX_FILE_BYTES = 600, 3 << 30, 64 << 20
_NICE = 15


def main(folder: Path) -> None:
    """Run the simulation of a folder."""
    _limit()
    threading.Thread(target=_end_with_server, daemon=True).start()
    text = (folder / REQUEST).read_text(encoding="utf-8")
    try:
        result = _run(folder, SimulationRequest.from_json(json.loads(text)))
    except FairleadError as error:
        result = {"error": str(error)}
    except MemoryError:
        result = {"error": "out of memory: expected a smaller trace or cluster"}
    replace_text(folder / RESULT, json.dumps(result), durable=False)


def _run(folder: Path, request: SimulationRequest) -> dict[str, object]:
    comparison, options = request.comparison()
    total, done = len(list(comparison.runs())), 0

    def show_progress(more: int) -> None:
        nonlocal done
        done += more
        progress = json.dumps({"done": done, "total": total})
        replace_text(folder / PROGRESS, progress, durable=False)

    show_progress(0)
    outcomes = compare(comparison, on_done=lambda: show_progress(1))
    replace_text(folder / REPORT, report(comparison, outcomes, options), durable=False)
    return {"heads": ["policy", *(each.label for each in KEY_FIGURES)], "rows": _rows(outcomes)}


def _rows(outcomes: Sequence[Outcome]) -> list[list[str]]:
    """Return the key figures of each policy as text, with the ratio to the first policy's."""
    rows: list[list[str]] = []
    for row in key_rows(outcomes, outcomes[0].run.load):
        cells = [row.policy]
        for quantity, mean, ratio in zip(KEY_FIGURES, row.means, row.ratios, strict=True):
            times = f" ({ratio:.2f}×)" if ratio is not None and rows else ""
            cells.append(mean.text(quantity) + times)
        rows.append(cells)
    return rows


def _limit() -> None:
    os.nice(_NICE)
    for kind, most in (
        (resource.RLIMIT_CPU, MAX_CPU_S),
        (resource.RLIMIT_AS, MAX_MEMORY_BYTES),
        (resource.RLIMIT_FSIZE, MAX_FILE_BYTES),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(kind, (most, most))


def _end_with_server() -> None:
    while os.read(0, 4096):
        pass
    os._exit(1)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
