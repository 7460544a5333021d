"""States that earlier versions pickled: read as data, never run.

Only containers, NumPy arrays and PyTorch tensors are built; every other name in a pickle is
refused before anything is called.
"""

import io
import pickle
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Mapping
from typing import Any

from fairlead.untrusted_file import UnusableFileError

_PICKLE = b"\x80"
_FIX = "resume the job with the version of Fairlead that wrote it, or submit the job again"


def read(payload: bytes) -> dict[str, Any]:
    """Return a pickled state; UnusableFileError if it holds more than data."""
    if not payload.startswith(_PICKLE):
        raise UnusableFileError("the checkpoint is damaged (unknown format)")
    try:
        state = _DataUnpickler(io.BytesIO(payload)).load()
    except UnusableFileError:
        raise
    # A damaged pickle can raise anything.
    except Exception as error:
        raise UnusableFileError(f"the checkpoint is damaged ({error})") from error
    if not isinstance(state, dict):
        raise UnusableFileError("the checkpoint is damaged (not a dict)")
    return state


def load_tensors(content: Any) -> Any:
    """Return what PyTorch saved, restricted to tensors; on the CPU if their GPU is missing."""
    import torch  # noqa: PLC0415  # only jobs that use it have it

    def place(storage: Any, location: str) -> Any:
        device, _, index = location.partition(":")
        is_missing = device == "cuda" and int(index or 0) >= torch.cuda.device_count()
        return storage if is_missing else None

    try:
        return torch.load(io.BytesIO(content), map_location=place, weights_only=True)
    except pickle.UnpicklingError as error:
        raise UnusableFileError(
            f"the checkpoint holds code, which is never run ({_first_line(error)}): {_FIX}"
        ) from error


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0][:200]


class _DataUnpickler(pickle.Unpickler):
    """Knows the names of data and refuses all others."""

    def find_class(self, module: str, name: str) -> Any:
        """Return the type or function for a name, which reads data only."""
        known = _NAMES.get((module.replace("numpy._core", "numpy.core"), name))
        if known is not None:
            return known
        if (module, name) in _TORCH_NAMES:
            import torch._utils  # noqa: PLC0415  # only jobs that use it have it

            return getattr(torch._utils, name)
        raise UnusableFileError(
            f"the checkpoint holds code ({module}.{name}), which is never run: {_FIX}"
        )


class _Dtype:
    """Type of a pickled array: a plain one, with its byte order."""

    def __init__(self, code: str) -> None:
        import numpy as np  # noqa: PLC0415  # only jobs that use it have it

        self.value = np.dtype(code)
        self._refuse_objects()

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        if any(part is not None for part in state[2:5]):
            raise UnusableFileError(f"the checkpoint holds an array of records: {_FIX}")
        self.value = self.value.newbyteorder(state[1]) if state[1] in "<>" else self.value

    def _refuse_objects(self) -> None:
        if self.value.hasobject:
            raise UnusableFileError(f"the checkpoint holds an array of objects: {_FIX}")


def _dtype(code: str, *_: object) -> _Dtype:
    return _Dtype(code)


def _array(content: Any, dtype: _Dtype, shape: tuple[int, ...], order: Any) -> Any:
    import numpy as np  # noqa: PLC0415  # only jobs that use it have it

    return np.frombuffer(bytearray(content), dtype.value).reshape(shape, order=order)


def _scalar(dtype: _Dtype, content: bytes) -> Any:
    import numpy as np  # noqa: PLC0415  # only jobs that use it have it

    return np.frombuffer(content, dtype.value)[0]


def _counter(counts: Mapping[Any, int]) -> Counter[Any]:
    return Counter(counts)


_NAMES: Mapping[tuple[str, str], Callable[..., Any]] = {
    ("builtins", "set"): set,
    ("builtins", "frozenset"): frozenset,
    ("builtins", "complex"): complex,
    ("builtins", "bytearray"): bytearray,
    ("collections", "OrderedDict"): OrderedDict,
    ("collections", "deque"): deque,
    ("collections", "Counter"): _counter,
    ("numpy", "dtype"): _dtype,
    ("numpy.core.numeric", "_frombuffer"): _array,
    ("numpy.core.multiarray", "scalar"): _scalar,
    ("torch.storage", "_load_from_bytes"): load_tensors,
}
_TORCH_NAMES = (("torch._utils", "_rebuild_tensor_v2"), ("torch._utils", "_rebuild_parameter"))
