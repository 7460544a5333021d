"""Simulations that take long tell so; commands that are ended undo what they have begun."""

import signal
from dataclasses import replace

import pytest
from tests.support.waiting import until

from fairlead.cli.research import runs
from fairlead.cli.research.caveats import warn_if_endless, warn_if_many_rounds
from fairlead.cli.shared.termination import exit_on_sigterm, sigterm_deferred
from fairlead.mechanisms.factory import create_mechanism
from fairlead.sim.runs import SimulationOptions, scenario_of


@pytest.mark.parametrize(("round_s", "warns"), [(0.001, True), (2.0, False), (None, False)])
def test_rounds_without_number_are_announced(
    capsys: pytest.CaptureFixture[str], round_s: float | None, warns: bool
) -> None:
    options = SimulationOptions(
        cluster="v100=4,p100=4,k80=4", speeds="gandiva-fair", policy="max-min"
    )
    warn_if_many_rounds(scenario_of(replace(options, round_s=round_s)))
    printed = capsys.readouterr()
    assert printed.out == ""
    assert ("--round: 0.001 s makes over 1,000,000 rounds" in printed.err) == warns


@pytest.mark.parametrize(
    ("restore_cost_s", "parts"),
    [
        (59.0, ()),
        (60.0, ("make no progress; expected less, or a longer --round",)),
        (1e6, ("wait 16,667 rounds for each restart, which may take hours; expected less",)),
    ],
)
def test_restarts_that_take_many_rounds_are_announced(
    capsys: pytest.CaptureFixture[str], restore_cost_s: float, parts: tuple[str, ...]
) -> None:
    warn_if_endless(restore_cost_s, [create_mechanism("gandiva")])
    printed = capsys.readouterr().err
    assert bool(printed) == bool(parts)
    assert all(part in printed for part in parts)


def test_a_run_outside_a_terminal_prints_its_progress(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(runs, "_FIRST_LINE_S", 0.0)
    monkeypatch.setattr(runs, "_LINE_S", 0.001)
    printed: list[str] = []

    def has_line() -> bool:
        printed.append(capsys.readouterr().err)
        return "2 of 3 jobs have finished" in "".join(printed)

    with runs._lines_of_progress(3) as on_progress:
        on_progress(60.0, 2)
        until(has_line)


def test_sigterm_waits_for_the_end_of_a_block_and_then_raises() -> None:
    before = signal.getsignal(signal.SIGTERM)
    steps = []

    def work() -> None:
        with sigterm_deferred():
            signal.raise_signal(signal.SIGTERM)
            steps.append("inside")
        steps.append("behind")

    try:
        exit_on_sigterm()
        with pytest.raises(SystemExit) as raised:
            work()
    finally:
        signal.signal(signal.SIGTERM, before)
    assert (raised.value.code, steps) == (143, ["inside"])
