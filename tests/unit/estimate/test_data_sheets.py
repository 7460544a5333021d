"""Data sheets of accelerators and the speeds guessed from them."""

import math

import pytest

from fairlead.estimate.data_sheet import find_sheet
from fairlead.estimate.first_guess import log_device_speed
from fairlead.files import read_speeds
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


def test_every_bundled_accelerator_except_mig_devices_has_a_data_sheet() -> None:
    known = known_accelerators()
    whole = {name for name in known if "g." not in name}
    memory = {name: known[name].memory_gib for name in whole}
    assert {name: SHEETS[name].memory_gib for name in memory} == memory


@pytest.mark.parametrize(("name", "part"), [("h200-mps50", 2), ("h200-mps25", 4)])
def test_a_part_of_the_multiprocessors_has_that_part_of_the_speed(name: str, part: int) -> None:
    """Large batches, which keep a device busy, ran at up to 1.4 times that part."""
    sheet, whole = SHEETS[name], SHEETS["h200"]
    assert log_device_speed(whole) - log_device_speed(sheet) == pytest.approx(math.log(part))
    assert (sheet.memory_gib, sheet.link_gb_s) == (whole.memory_gib, whole.link_gb_s)
    table = read_speeds("h200")
    for workload in ("cnn-1024", "vit-512", "encoder-256", "decoder-256", "gan-1024"):
        ratio = table.speed(workload, [name]) / table.speed(workload, ["h200"])
        assert 1.0 < ratio * part < 1.4


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
