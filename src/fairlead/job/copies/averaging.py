"""Average of the states of a job's copies, weighted by the steps that each has made (HadarE §V).

Floating-point tensors, arrays and numbers are averaged. All other values, such as counters, are
those of the copy with the most steps. Positions and random states are those of the copy that is
the least behind as many items as all copies have made steps.
"""

import sys
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from fairlead.block_file import Payload
from fairlead.job import checkpoint
from fairlead.job.committed import CommittedCheckpoint
from fairlead.job.state_format import SavedState


def restored_state(directory: str, committed: CommittedCheckpoint, rank: int) -> SavedState:
    """Return a rank's state in a committed checkpoint; OSError if a file is damaged."""
    if committed.weights:
        position = committed.position
        payloads = list(checkpoint.read_all(directory, committed))
        return AveragedState(
            payloads, committed.weights, None if position is None else position[0]
        )
    payload = checkpoint.read(directory, rank)
    assert payload is not None
    return SavedState(payload)


class AveragedState(SavedState):
    """The average of several states, computed by name when it is taken."""

    def __init__(
        self, payloads: Sequence[Payload], weights: Sequence[int], position: int | None = 0
    ) -> None:
        """Read the headers; the first payload is that of the copy with the most steps.

        ``position`` is the payload that positions are from, None if there is none.
        """
        super().__init__(payloads[0])
        weighed = [payload for payload, weight in zip(payloads, weights, strict=True) if weight]
        self._others = [SavedState(payload) for payload in weighed[1:]]
        self._position = None if position is None else SavedState(payloads[position])
        total = sum(weights)
        self._weights = [weight / total for weight in weights if weight]

    def take(self, name: str, *, to_copy: bool = False) -> Any:
        """Return and forget the average of an object's states; KeyError if there is none."""
        if self._position is not None:
            self._position.forget(name)
        values = [super().take(name, to_copy=to_copy)]
        for other in self._others:
            if name not in other.names():
                return values[0]
            values.append(other.take(name, to_copy=to_copy))
        return average(values, self._weights)

    def take_position(self, name: str) -> Any:
        """Return the state of an object that follows the items; None without a position."""
        for copy in (self, *self._others):
            copy.forget(name)
        if self._position is None or name not in self._position.names():
            return None
        return self._position.take(name)


def average(values: Sequence[Any], weights: Sequence[float]) -> Any:
    """Return the weighted average of values of one structure; the first one where they differ.

    ``weights`` add up to 1.
    """
    first = values[0]
    if any(type(value) is not type(first) for value in values):
        return first
    if isinstance(first, dict):
        return _averaged_dict(values, weights)
    if type(first) in (list, tuple):
        if any(len(value) != len(first) for value in values):
            return first
        items = (average(each, weights) for each in zip(*values, strict=True))
        return type(first)(items)
    if type(first) is float:
        same = all(value == first for value in values)
        return first if same else sum(w * v for w, v in zip(weights, values, strict=True))
    return _averaged_array(values, weights)


def _averaged_dict(values: Sequence[Any], weights: Sequence[float]) -> Any:
    first = values[0]
    if any(value.keys() != first.keys() for value in values):
        return first
    averaged = type(first)()
    if isinstance(first, OrderedDict):  # a module's state dict has attributes, too
        vars(averaged).update(vars(first))
    for key in first:
        averaged[key] = average([value[key] for value in values], weights)
    return averaged


def _averaged_array(values: Sequence[Any], weights: Sequence[float]) -> Any:
    """Return the average of tensors or arrays; the first value if it is neither."""
    first, numpy, torch = values[0], sys.modules.get("numpy"), sys.modules.get("torch")
    if torch is not None and isinstance(first, torch.Tensor):
        return _averaged_tensor(torch, values, weights)
    if numpy is not None and isinstance(first, numpy.ndarray | numpy.inexact):
        if first.dtype.kind not in "fc" or any(value.shape != first.shape for value in values):
            return first
        total = sum(
            w * v.astype(numpy.result_type(v, numpy.float64))
            for w, v in zip(weights, values, strict=True)
        )
        return (
            numpy.asarray(total).astype(first.dtype)[()]
            if first.ndim == 0
            else total.astype(first.dtype)
        )
    return first


def _averaged_tensor(torch: Any, values: Sequence[Any], weights: Sequence[float]) -> Any:
    first = values[0]
    plain = first.layout == torch.strided and not first.is_quantized
    if not plain or not (first.is_floating_point() or first.is_complex()):
        return first
    if any(value.shape != first.shape for value in values):
        return first
    with torch.no_grad():
        # Half precision would lose what a slow copy adds.
        wide = torch.promote_types(first.dtype, torch.float32)
        total = torch.zeros_like(first, dtype=wide)
        for weight, value in zip(weights, values, strict=True):
            total.add_(value.to(first.device, wide), alpha=weight)
        averaged = total.to(first.dtype)
    if isinstance(first, torch.nn.Parameter):
        return torch.nn.Parameter(averaged, requires_grad=first.requires_grad)
    return averaged.requires_grad_(first.requires_grad)
