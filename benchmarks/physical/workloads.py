"""The workloads: eight small models of different kinds, each at three batch sizes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from benchmarks.physical.models import (
    cnn,
    gan,
    language,
    lstm,
    recommender,
    reinforcement,
    vit,
)
from benchmarks.physical.models.training import Training


@dataclass(frozen=True, slots=True)
class Model:
    """A model and the batch sizes at which it is profiled."""

    build: Callable[[int, str], Training]
    """takes the batch size and the device"""
    batch_sizes: tuple[int, int, int]


MODELS: Mapping[str, Model] = {
    "cnn": Model(cnn.build, (64, 256, 1024)),
    "vit": Model(vit.build, (32, 128, 512)),
    "encoder": Model(language.build_encoder, (16, 64, 256)),
    "decoder": Model(language.build_decoder, (16, 64, 256)),
    "lstm": Model(lstm.build, (32, 128, 512)),
    "recommender": Model(recommender.build, (1024, 4096, 16384)),
    "gan": Model(gan.build, (64, 256, 1024)),
    "policy": Model(reinforcement.build, (64, 1024, 16384)),
}
"""models by name"""


def workload_name(model: str, batch_size: int) -> str:
    """Return the workload of a model at a batch size: ``cnn-64``."""
    return f"{model}-{batch_size}"


def workloads() -> list[str]:
    """Return all workloads, model by model."""
    return [
        workload_name(name, batch_size)
        for name, model in MODELS.items()
        for batch_size in model.batch_sizes
    ]


def build(workload: str, device: str) -> Training:
    """Return the training of a workload such as ``cnn-64``, always from the same start."""
    model, _, batch_size = workload.rpartition("-")
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    return MODELS[model].build(int(batch_size), device)
