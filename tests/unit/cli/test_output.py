"""Text output of commands: tables that lose nothing, and values that people can read."""

import pytest
from rich.console import Console

from fairlead.cli.client import job_page
from fairlead.cli.client.watch import jobs_table
from fairlead.cli.operate import audit_trail
from fairlead.cli.shared import output
from fairlead.cli.shared.tables import fitting_tables
from fairlead.client import Client


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> Console:
    """A recorded terminal of 100 columns."""
    console = Console(width=100, record=True, markup=False, emoji=False)
    for module in (output, job_page):
        monkeypatch.setattr(module, "results", console)
    return console


def test_a_narrow_table_cuts_neither_ids_nor_dates(page: Console) -> None:
    heads = ["id", "name", "role", "tenant", "sees also", "scopes", "created", "expires", "used"]
    at, scopes = "2026-11-17 03:16:18 UTC", "all of its role"
    output.table(
        "1 token", heads, [["d673c9200e6c", "admin", "admin", "", "", scopes, at, at, at]]
    )
    text = page.export_text()
    assert "d673c9200e6c" in text
    assert text.count("2026-11-17") == 3
    assert "…" not in text


HEADS = ["lease", "devices", "nodes", "started", "held", "ending", "steps", "began", "left"]
LEASE = ["1048576", "v100=1", "v100-0", "2026-11-18 01:44:09 UTC", "37.5 s", "finished", "200"]
LEASE += ["start 28.9 s", "exit 5.8 s"]


@pytest.mark.parametrize("width", [40, 60, 80, 100, 140])
def test_a_table_breaks_no_short_word_at_any_width(width: int) -> None:
    console = Console(width=width, record=True)
    console.print(*fitting_tables("1 lease", HEADS, [LEASE], width=width), sep="\n")
    text = console.export_text()
    words = set(text.replace("│", " ").replace("┃", " ").split())
    assert {*HEADS, *(word for cell in LEASE for word in cell.split())} <= words
    assert max(map(len, text.splitlines())) <= width


def test_the_parts_of_a_table_repeat_the_first_column_and_have_one_title() -> None:
    rows = [[f"j{i}", *(f"{head}-{i}" for head in HEADS[1:])] for i in range(3)]
    parts = fitting_tables("3 leases", HEADS, rows, width=50)
    assert len(parts) > 1
    assert [part.title for part in parts] == ["3 leases", *[None] * (len(parts) - 1)]
    for part in parts:
        assert [*part.columns[0].cells] == ["j0", "j1", "j2"]
    shown = [str(column.header) for part in parts for column in part.columns[1:]]
    assert shown == HEADS[1:]


class _Server(Client):
    """A server whose job has one ended lease."""

    def __init__(self) -> None:
        super().__init__("http://127.0.0.1:1", "token")

    def get(self, path: str, **parameters: object) -> object:
        del parameters
        if path.endswith("speeds"):
            return []
        lease = {"lease": 1, "accelerators": {"v100": 1}, "nodes": ["n"], "ending": "finished"}
        lease |= {"started_at": 0.0, "ended_at": 24.0, "steps": 200.0, "lost_s": 0.0}
        lease |= {"began": "start", "start_s": 1.0, "left": "exit", "end_s": None}
        lease |= {"switch": "switch: exit (it runs in a container)"}
        return {"ended": [lease], "device_hours": 24 / 3600}


def test_the_page_of_a_job_leaves_out_what_it_does_not_have(page: Console) -> None:
    job = {"id": "j1", "state": "finished", "leases": 1, "failures": 0, "message": ""}
    job |= {"after": [], "time_limit_s": None, "partners": 0, "metrics": {"loss": 0.0193611402}}
    job_page.print_job(_Server(), job)
    text = page.export_text()
    for shown in ("finished", "failures", "loss=0.0193611", "24.0 s"):
        assert shown in text
    assert "lease 1: switch: exit (it runs in a container)\n" in text
    for absent in ("message", "after", "time_limit_s", "partners", "0.01 h"):
        assert absent not in text


def test_the_audit_trail_shows_new_values_once_and_times_as_times() -> None:
    changes = {"role": {"old": None, "new": "tenant"}, "sees": {"old": None, "new": []}}
    changes["weight"] = {"old": 1.0, "new": 2.0}
    assert audit_trail._values(changes) == "role: tenant, weight: 1.0 → 2.0"
    restored = {"time": {"old": 1794885492.8, "new": 1794885466.8}}
    assert audit_trail._values(restored).count("2026-11-17") == 2


@pytest.mark.parametrize(
    ("seconds", "text"), [(24.06, "24.1 s"), (90.0, "1.5 min"), (5400.0, "1.50 h")]
)
def test_durations_have_a_unit_that_suits_them(seconds: float, text: str) -> None:
    assert output.duration(seconds) == text


@pytest.mark.parametrize("width", [20, 80])
def test_cells_that_a_row_lacks_are_empty(width: int) -> None:
    parts = fitting_tables("t", ["a", "b", "c"], [["one", "two"], ["x" * 9] * 3], width=width)
    assert all(part.row_count == 2 for part in parts)


@pytest.mark.parametrize(
    ("held", "text"),
    [
        ({}, ""),
        ({"k80": 1}, "k80"),
        ({"k80": 2}, "2 k80"),
        ({"v100": 1, "k80": 1}, "1 v100, 1 k80"),
    ],
)
def test_the_list_of_jobs_names_all_accelerators_of_a_job(held: dict[str, int], text: str) -> None:
    job = {
        "id": "j1",
        "name": "copies",
        "tenant": "red",
        "state": "running",
        "devices": sum(held.values()),
        "accelerators_held": held,
        "steps_done": 0.0,
        "total_steps": 5,
        "preemptions": 0,
        "lost_s": 0.0,
    }
    (drawn,) = jobs_table([job])
    assert [*drawn.columns[4].cells] == [text]
