"""The bundled tables agree with the sources they come from."""

import csv
import gzip
import re
import statistics

import pytest
from tests.support.shared_data import needs_shared, shared

from fairlead.files import gandiva_packing, known_accelerators, read_speeds
from fairlead.files.bundled import SPEEDS

# Gandiva_fair (EuroSys 2020), Table 1: K80 ms per mini-batch; P40, P100, V100 speedups in %.
GANDIVA_FAIR = {
    "VAE": (11.5, 117, 119, 125),
    "SuperResolution": (207.5, 143, 173, 187),
    "DCGAN": (183.4, 434, 431, 642),
    "GRU": (48.4, 300, 358, 481),
    "LSTM": (48.9, 310, 358, 481),
    "ResNet-50": (134, 317, 334, 514),
    "ResNext-50": (2005.7, 370, 412, 633),
}
# Gandiva (OSDI 2018), Table 1: utilisation and gain from packing, both in %.
GANDIVA = {
    "VAE": (8.7, 412),
    "SuperResolution": (14.1, 260),
    "RHN": (61.6, 46),
    "SCRNN": (66.8, 39),
    "MI-LSTM": (76.2, 17),
    "LSTM": (87.2, -16),
    "ResNet-50": (94.0, -13),
    "ResNext-50": (98.9, -11),
}


@pytest.mark.parametrize("workload", GANDIVA_FAIR)
def test_speeds_are_those_of_gandiva_fair(workload: str) -> None:
    ms, *percents = GANDIVA_FAIR[workload]
    row = read_speeds("gandiva-fair").row(workload, 1, ("k80", "p40", "p100", "v100"))
    expected = [1000 / ms * percent / 100 for percent in (100, *percents)]
    assert row.tolist() == pytest.approx(expected, rel=1e-5)


def test_the_table_has_no_other_workloads() -> None:
    assert set(read_speeds("gandiva-fair").workloads) == set(GANDIVA_FAIR)


def test_packing_gains_are_those_of_gandiva() -> None:
    packing = gandiva_packing()
    assert set(packing) == set(GANDIVA)
    for workload, (utilization, gain) in GANDIVA.items():
        assert packing[workload].utilization == pytest.approx(utilization / 100)
        # The paper rounds; its LSTM row is -16 where the speeds give -16.9.
        assert 100 * (packing[workload].ratio - 1) == pytest.approx(gain, abs=1.0)


def test_prices_and_memory_of_the_papers_accelerators() -> None:
    known = known_accelerators()
    assert [known[a].usd_per_hour for a in ("v100", "p100", "k80")] == [0.74, 0.43, 0.135]
    assert [known[a].memory_gib for a in ("k80", "p40", "p100", "v100")] == [12, 24, 16, 16]
    assert {"t4", "a10g", "a100", "a100-80gb", "h100", "h200", "l4", "b200"} <= set(known)


# Accelerator → round, name in the submissions' system descriptions, devices of the node.
MLPERF_2020 = {
    "v100": ("v0.7", "NVIDIA V100($|-SXM2-16GB)", 8),
    "a100": ("v0.7", "NVIDIA A100($|-SXM4-40GB)", 8),
}
MLPERF_2023 = {
    "l4": ("v3.1", "NVIDIA L4$", 6),
    "a30": ("v3.1", "NVIDIA A30$", 8),
    "l40": ("v3.1", "NVIDIA L40$", 8),
    "l40s": ("v3.1", "NVIDIA L40S$", 8),
    "a100-80gb": ("v2.1", "NVIDIA A100-SXM4?-80GB", 8),
    "h100": ("v3.1", "NVIDIA H100-SXM5?-80GB", 8),
}
MLPERF_2025 = {
    "h100": ("v4.1", "NVIDIA H100-SXM5?-80GB", 8),
    "h200": ("v5.0", "NVIDIA H200-SXM5", 8),
    "b200": ("v5.0", "NVIDIA .*B200-SXM-180GB", 8),
}
BENCHMARKS = {
    "BERT": ("bert",),
    "ResNet-50": ("resnet",),
    "RNN-T": ("rnnt",),
    "GNMT": ("gnmt",),
    "Mask-R-CNN": ("maskrcnn",),
    "Minigo": ("minigo",),
    "SSD": ("ssd",),
    "Transformer": ("transformer",),
    "RetinaNet": ("ssd", "retinanet"),
    "DLRM-DCNv2": ("dlrm_dcnv2",),
    "Llama-2-70B-LoRA": ("llama2_70b_lora",),
    "R-GAT": ("gnn", "rgat"),
    "Stable-Diffusion": ("stable_diffusion",),
}


@needs_shared
@pytest.mark.parametrize(
    ("name", "accelerators"),
    [
        ("mlperf-2020", MLPERF_2020),
        ("mlperf-2023", MLPERF_2023),
        ("mlperf-2025", MLPERF_2025),
    ],
)
def test_speeds_of_newer_accelerators_are_medians_of_mlperf_logs(
    name: str, accelerators: dict[str, tuple[str, str, int]]
) -> None:
    with gzip.open(shared("data/mlperf/time_to_train.csv.gz"), "rt") as file:
        rows = [row for row in csv.DictReader(file) if row["division"] == "closed"]
    table = read_speeds(name)
    assert table.accelerators == tuple(accelerators)
    for workload in table.workloads:
        for accelerator, (round_name, system, devices) in accelerators.items():
            minutes = [
                float(row["median_minutes"])
                for row in rows
                if (row["round"], row["nodes"], row["accel_per_node"])
                == (round_name, "1", str(devices))
                and row["benchmark"] in BENCHMARKS[workload]
                and re.match(system, row["accelerator"])
            ]
            expected = 1e6 / (60 * statistics.median(minutes)) / devices
            assert table.speed(workload, (accelerator,)) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("name", SPEEDS)
def test_bundled_tables_have_every_workload_on_every_known_accelerator(name: str) -> None:
    table = read_speeds(name)
    # A gap would mean that the workload does not run there.
    for workload in table.workloads:
        assert table.row(workload, 1, table.accelerators).all()
    assert set(table.accelerators) <= set(known_accelerators())
