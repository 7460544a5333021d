"""Tests of this folder need a GPU; elsewhere they are skipped."""

import sys

import pytest

from fairlead.engines.local.gpus.nvidia_smi import list_gpus


def pytest_runtest_setup() -> None:
    if not list_gpus():
        pytest.skip("no GPU")
    torch = sys.modules.get("torch")
    if torch is not None and not torch.cuda.is_available():
        pytest.skip("PyTorch has no CUDA device")
