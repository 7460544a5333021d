"""The Python API for notebooks: the same figures as the command line, as tables."""

import json
import subprocess
import sys

import pytest

import fairlead
from fairlead.model.errors import InputError, UsageError
from fairlead.notebook import FIGURES, Table

CLUSTER = "v100=4,k80=4"


def test_simulate_gives_the_figures_of_the_command_line() -> None:
    run = fairlead.simulate("max-min", cluster=CLUSTER)
    command = [sys.executable, "-m", "fairlead", "simulate", "--cluster", CLUSTER, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    expected = json.loads(done.stdout)
    assert run.summary == {name: expected[name] for name in FIGURES}
    assert list(run.jobs.as_dicts()) == expected["jobs"]
    assert list(run.tenants.as_dicts()) == expected["tenants"]


def test_compare_gives_one_row_per_policy() -> None:
    table = fairlead.compare(["max-min", "fifo"], cluster=CLUSTER, window=(0, 20))
    assert table["policy"] == ["max-min", "fifo"]
    assert all(value > 0 for value in table["avg_jct_s"])


def test_a_table_renders_as_escaped_html_and_shortens_long_ones() -> None:
    table = Table(("job", "jct_s"), tuple((f"<{i}>", 1.23456789) for i in range(60)))
    page = table._repr_html_()
    assert "&lt;0&gt;" in page
    assert "1.235" in page
    assert "10 more rows" in page


def test_errors_name_the_column_or_the_input() -> None:
    with pytest.raises(UsageError, match="no such column"):
        Table(("a",), ())["b"]
    with pytest.raises(InputError):
        fairlead.simulate(cluster="v100=x")


def test_importing_fairlead_loads_no_numpy() -> None:
    code = "import sys, fairlead; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
