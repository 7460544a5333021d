"""Inventory and readings of a real GPU by NVML, compared with those of ``nvidia-smi``."""

import subprocess

import pytest

pytest.importorskip("pynvml")
from fairlead.engines.local.gpus.nvidia_smi import list_gpus
from fairlead.engines.local.gpus.nvml import NvmlReader, open_nvml

pytestmark = pytest.mark.gpu


@pytest.fixture
def reader() -> NvmlReader:
    opened = open_nvml()
    assert opened is not None
    return opened


def test_nvml_lists_the_devices_of_nvidia_smi(reader: NvmlReader) -> None:
    assert reader.gpus() == list_gpus()


def test_readings_agree_with_nvidia_smi(reader: NvmlReader) -> None:
    for number, gpu in enumerate(reader.gpus()):
        reading = reader.read(gpu.uuid, number)
        assert (reading.unusable, reading.xids) == ("", ()), reading
        assert reading.number == number
        assert reading.memory_gib is not None
        assert reading.memory_used_gib is not None
        assert 0.0 <= reading.memory_used_gib <= reading.memory_gib
        if gpu.uuid.startswith("MIG-"):
            continue
        fields = "memory.total,temperature.gpu,ecc.errors.uncorrected.volatile.total"
        command = ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader,nounits"]
        text = subprocess.check_output([*command, f"--id={gpu.uuid}"], text=True)
        memory_mib, temperature_c, ecc = text.strip().split(", ")
        assert reading.memory_gib == pytest.approx(float(memory_mib) / 1024, rel=0.02)
        assert reading.temperature_c == pytest.approx(float(temperature_c), abs=5)
        if ecc.isdigit():
            assert reading.uncorrectable_ecc == int(ecc)
        assert reading.utilisation is not None
        assert 0.0 <= reading.utilisation <= 1.0


def test_load_is_seen(reader: NvmlReader) -> None:
    torch = pytest.importorskip("torch")
    (gpu, *_) = reader.gpus()
    if gpu.uuid.startswith("MIG-"):
        pytest.skip("NVML has no load of MIG devices")
    torch.cuda.empty_cache()  # of earlier tests, whose memory the matrix would get
    before = reader.read(gpu.uuid, 0)
    matrix = torch.randn(8192, 8192, device="cuda")
    for _ in range(2000):
        matrix = torch.nn.functional.normalize(matrix @ matrix)
    during = reader.read(gpu.uuid, 0)  # the kernels still run
    torch.cuda.synchronize()
    assert before.memory_used_gib is not None
    assert during.memory_used_gib is not None
    assert during.memory_used_gib > before.memory_used_gib + 0.2
    while (during.utilisation or 0.0) < 0.5:
        matrix = torch.nn.functional.normalize(matrix @ matrix)
        during = reader.read(gpu.uuid, 0)
