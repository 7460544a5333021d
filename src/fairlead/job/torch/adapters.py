"""States of PyTorch's objects: modules, optimizers, loaders, samplers, generators, tensors."""

from collections.abc import Mapping
from typing import Any

import torch
from torch.utils import data

from fairlead.job.torch import loaders
from fairlead.job.torch.shards import fit, is_sharded


def adapt(name: str, thing: Any) -> Any:
    """Return the state of an object of PyTorch's, None if the object itself is its state."""
    if isinstance(thing, torch.nn.Module):
        return ModuleState(thing)
    if isinstance(thing, torch.optim.Optimizer):
        return OptimizerState(thing)
    if isinstance(thing, data.DataLoader):
        return loaders.resume_loader(name, thing)
    if isinstance(thing, data.Sampler) and not hasattr(thing, "load_state_dict"):
        return loaders.resume_sampler(thing)
    if isinstance(thing, torch.Generator):
        return GeneratorState(thing)
    if type(thing) in (torch.Tensor, torch.nn.Parameter):
        return TensorState(thing)
    return None


class ModuleState:
    """Parameters and buffers of a module, plain, in DDP or sharded by FSDP."""

    copies_tensors = True

    def __init__(self, module: Any) -> None:
        self._module = module

    def state_dict(self) -> Mapping[str, Any]:
        """Return the module's state; under FSDP this rank's parts."""
        if _has_flat_parameters(self._module):
            return _local_tensors(self._module)
        state: Mapping[str, Any] = self._module.state_dict()
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the module in place."""
        if _has_flat_parameters(self._module):
            _load_local_tensors(self._module, state)
            return
        own = self._module.state_dict()
        for key in state.keys() & own.keys():
            state[key] = fit(state[key], own[key], key)
        self._module.load_state_dict(state)


class OptimizerState:
    """State of an optimizer, whose tensors are sharded as their parameters are."""

    def __init__(self, optimizer: Any) -> None:
        self._optimizer = optimizer

    @property
    def copies_tensors(self) -> bool:
        """Whether the tensors of a state are copied to devices; on the CPU they are kept."""
        return all(one.device.type != "cpu" for one in self._parameters())

    def state_dict(self) -> dict[str, Any]:
        """Return the optimizer's state."""
        state: dict[str, Any] = self._optimizer.state_dict()
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the optimizer."""
        parameters = self._parameters()
        for index, values in state["state"].items():
            # Optimizers may have entries that belong to no parameter, under other names.
            target = parameters[index] if isinstance(index, int) else None
            for key, value in values.items():
                values[key] = fit(value, target, f"{key} of parameter {index}")
        self._optimizer.load_state_dict(state)

    def _parameters(self) -> list[Any]:
        return [one for group in self._optimizer.param_groups for one in group["params"]]


class GeneratorState:
    """State of a random generator, from which the items' order may be drawn."""

    follows_items = True

    def __init__(self, generator: Any) -> None:
        self._generator = generator

    def state_dict(self) -> dict[str, Any]:
        """Return the generator's state."""
        return {"state": self._generator.get_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the generator."""
        self._generator.set_state(state["state"])


class TensorState:
    """A tensor, updated in place."""

    copies_tensors = True

    def __init__(self, tensor: Any) -> None:
        self._tensor = tensor

    def state_dict(self) -> dict[str, Any]:
        """Return the tensor's content."""
        return {"tensor": self._tensor.detach()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the tensor's content."""
        self._tensor.detach().copy_(state["tensor"])


def _has_flat_parameters(module: Any) -> bool:
    """Return whether the wrapper FullyShardedDataParallel holds parameters in flat tensors."""
    return any(type(inner).__name__ == "FullyShardedDataParallel" for inner in module.modules())


def _local_tensors(module: Any) -> dict[str, Any]:
    """Return parameters and buffers as this rank holds them between steps."""
    named = (*module.named_parameters(), *module.named_buffers())
    return {name: torch.Tensor.detach(value).as_subclass(torch.Tensor) for name, value in named}


def _load_local_tensors(module: Any, state: dict[str, Any]) -> None:
    own = _local_tensors(module)
    if {name: value.shape for name, value in own.items()} != {
        name: value.shape for name, value in state.items()
    }:
        raise ValueError(
            "the checkpoint holds other parts of the model than this rank: expected the"
            " gang size and the model that saved it"
        )
    for name, value in own.items():
        assert not is_sharded(value)
        value.copy_(state[name])
