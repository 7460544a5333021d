"""Parsing of the driver's list of GPUs."""

from fairlead.engines.local.gpus.gpu import Gpu
from fairlead.engines.local.gpus.nvidia_smi import parse_list

WHOLE = """GPU 0: NVIDIA H200 (UUID: GPU-aaaa-1)
GPU 1: Tesla V100-SXM2-16GB (UUID: GPU-bbbb-2)
GPU 2: NVIDIA GeForce RTX 3090 (UUID: GPU-cccc-3)
"""
WITH_MIG = """GPU 0: NVIDIA H200 (UUID: GPU-aaaa-1)
  MIG 3g.71gb     Device  0: (UUID: MIG-1111)
  MIG 2g.35gb     Device  1: (UUID: MIG-2222)
  MIG 1g.18gb     Device  2: (UUID: MIG-3333)
  MIG 1g.18gb     Device  3: (UUID: MIG-4444)
GPU 1: NVIDIA H200 (UUID: GPU-bbbb-2)
"""


def test_whole_gpus_are_named_by_their_model() -> None:
    assert parse_list(WHOLE) == (
        Gpu("h200", "GPU-aaaa-1"),
        Gpu("v100-sxm2-16gb", "GPU-bbbb-2"),
        Gpu("3090", "GPU-cccc-3"),
    )


def test_a_gpu_with_mig_devices_is_listed_as_these() -> None:
    assert parse_list(WITH_MIG) == (
        Gpu("h200-3g.71gb", "MIG-1111"),
        Gpu("h200-2g.35gb", "MIG-2222"),
        Gpu("h200-1g.18gb", "MIG-3333"),
        Gpu("h200-1g.18gb", "MIG-4444"),
        Gpu("h200", "GPU-bbbb-2"),
    )


def test_a_message_instead_of_a_list_means_no_gpus() -> None:
    assert parse_list("No devices found.\n") == ()
