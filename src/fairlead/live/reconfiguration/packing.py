"""Refuses policies that pack jobs where another scheduler chooses the GPUs of each lease."""

from fairlead.live.scheduling_config import SchedulingConfig
from fairlead.model.capabilities import capabilities_of
from fairlead.model.errors import InputError


def require_packing(config: SchedulingConfig, device_chooser: str) -> None:
    """Raise InputError if a config packs jobs, and a ``device_chooser`` prevents it."""
    if not device_chooser or not capabilities_of(config.mechanism).packs:
        return
    name = config.policy if config.mechanism_name is None else config.mechanism_name
    raise InputError(
        f"{name!r} lets jobs share GPUs, but {chooses_gpus(device_chooser)}",
        fix="expected a policy that packs no jobs, or --engine local",
        field="policy",
    )


def chooses_gpus(device_chooser: str) -> str:
    """Return why Fairlead can neither pack jobs nor read GPUs there."""
    return f"{device_chooser} chooses the GPUs of each lease: no device number names a GPU"
