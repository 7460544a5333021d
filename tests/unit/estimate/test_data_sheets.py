"""Data sheets of accelerators and the speeds guessed from them."""

import math

import pytest

from fairlead.estimate.data_sheet import find_sheet
from fairlead.estimate.first_guess import log_device_speed
from fairlead.files.bundled import data_sheets, known_accelerators

SHEETS = data_sheets()


def test_every_figure_is_plausible_and_has_a_source() -> None:
    for name, sheet in SHEETS.items():
        assert 2013 <= sheet.year <= 2026, name
        assert 4 < sheet.fp32_tflops < 200, name
        assert sheet.fp32_tflops <= sheet.matrix_tflops < 4000, name
        assert 8 <= sheet.memory_gib <= 300, name
        assert 150 < sheet.memory_gb_s <= 10_000, name
        assert 32 <= sheet.link_gb_s <= 2000, name
        assert sheet.pcie in {3, 4, 5}, name
        assert sheet.source, name


def test_every_bundled_accelerator_that_is_sold_has_a_data_sheet() -> None:
    known = known_accelerators()
    whole = {name for name in known if not name.startswith("h200-")}  # MIG and MPS parts of it
    memory = {name: known[name].memory_gib for name in whole}
    assert {name: SHEETS[name].memory_gib for name in memory} == memory


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("V100", "v100"),
        ("NVIDIA-A100-SXM4-80GB", "a100-80gb"),
        ("nvidia geforce rtx 4090", "rtx-4090"),
        ("Tesla_T4", "t4"),
        ("NVIDIA H100 80GB", "h100"),
        ("AMD Instinct MI300X", "mi300x"),
        ("H100-PCIE", "h100-pcie"),
        ("tpu-v7", None),
    ],
)
def test_sheets_answer_to_the_names_that_drivers_report(name: str, expected: str | None) -> None:
    sheet = find_sheet(name, SHEETS)
    assert sheet == (None if expected is None else SHEETS[expected])


def test_the_guess_is_a_geometric_mean_of_arithmetic_and_bandwidth() -> None:
    ratio = math.exp(log_device_speed(SHEETS["h100"]) - log_device_speed(SHEETS["k80"]))
    arithmetic = (66.91 / 4.11) ** 0.25 * (989.4 / 4.11) ** 0.1
    assert ratio == pytest.approx(arithmetic * (3350 / 240) ** 0.65)
