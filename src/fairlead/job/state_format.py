"""State of a run as bytes that hold data only: loading them never runs code.

A payload is a magic number, the length of a JSON header, the header, and the binary parts that
the header names by their number, each at a multiple of 64 bytes. Numbers, text and lists are
plain JSON; every other value is an object with one member, which names its type. NumPy arrays are
binary parts in NumPy's own format, read without pickle; storages of PyTorch tensors are binary
parts as they are in memory.
"""

import io
import json
import math
import struct
import sys
from collections import Counter, OrderedDict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from fairlead.block_file import Payload
from fairlead.job import old_state
from fairlead.untrusted_file import UnusableFileError

_MAGIC = b"FLSTATE1"
_LENGTH = 8
_ALIGNMENT = 64
"""parts begin at multiples of this, so that tensors can be made of them without a copy"""
_MAX_DEPTH = 100
_JSON_INT = 1 << 63
_ITERABLES: Mapping[str, type] = {"tuple": tuple, "set": set, "frozenset": frozenset}
_STORABLE = (
    "expected numbers, text, bytes, lists, tuples, dicts, sets, NumPy arrays or PyTorch tensors;"
    " give other objects state_dict() and load_state_dict(), and register them by name"
)


class StateError(TypeError):
    """An object of the state cannot be stored as data."""


class HostMemory(Protocol):
    """Memory that tensors are copied to; see ``fairlead.job.torch.HostState``."""

    def copy_out(self, storages: Sequence[Any]) -> list[memoryview]:
        """Return the bytes of each storage, valid until the next call."""


def encode_state(state: Mapping[str, object]) -> bytes:
    """Return the state of registered objects, by name, as bytes.

    Raises StateError, which names the object, for a value that is not data.
    """
    return b"".join(encode_chunks(state))


def encode_chunks(state: Mapping[str, object], host: HostMemory | None = None) -> list[Payload]:
    """Return the state of registered objects as consecutive chunks of bytes.

    Chunks of tensors are in ``host`` memory, which later calls use again. Raises StateError,
    which names the object, for a value that is not data.
    """
    encoder = _Encoder()
    tree = {name: encoder.encode(value, f"register({name}=…)", 0) for name, value in state.items()}
    parts = encoder.finish(host)
    sizes = [len(part) for part in parts]
    header = json.dumps({"tree": tree, "sizes": sizes, "alignment": _ALIGNMENT}).encode()
    header += b" " * _padding(len(_MAGIC) + _LENGTH + len(header), _ALIGNMENT)
    chunks: list[Payload] = [_MAGIC, len(header).to_bytes(_LENGTH, "big"), header]
    for part in parts:
        chunks += (part, b"\0" * _padding(len(part), _ALIGNMENT))
    return chunks


def _padding(length: int, alignment: int) -> int:
    return -length % alignment


def decode_state(payload: Payload) -> dict[str, Any]:
    """Return the state that ``encode_state`` encoded, or an earlier version pickled.

    Raises UnusableFileError if the payload is damaged, or if only code could restore it.
    """
    saved = SavedState(payload)
    return {name: saved.take(name) for name in saved.names()}


class SavedState:
    """The state in a payload, decoded by name when it is taken."""

    def __init__(self, payload: Payload) -> None:
        """Read the header; UnusableFileError if the payload is damaged or holds code."""
        self._tree: dict[str, Any] = {}
        self._decoder: _Decoder | None = None
        view = memoryview(payload)
        if view[: len(_MAGIC)] != _MAGIC:
            self._tree = old_state.read(bytes(view))
            return
        with _damage_reported():
            start = len(_MAGIC) + _LENGTH
            end = start + int.from_bytes(view[len(_MAGIC) : start], "big")
            header = json.loads(bytes(view[start:end]))
            alignment, parts = header.get("alignment", 1), []
            for size in header["sizes"]:
                parts.append(view[end : end + size])
                end += size + _padding(size, alignment)
            if end != len(view):
                raise ValueError("length")
            self._tree, self._decoder = dict(header["tree"]), _Decoder(parts)

    def names(self) -> list[str]:
        """Return the names that were not taken yet."""
        return list(self._tree)

    def take(self, name: str, *, to_copy: bool = False) -> Any:
        """Return and forget the state of an object; KeyError if there is none.

        Tensors are on the devices that they were saved from, where present. A caller that copies
        them gets them on the CPU, in the payload's memory where possible.
        """
        state = self._tree[name]
        if self._decoder is not None:
            with _damage_reported(name):
                self._decoder.to_copy = to_copy
                state = self._decoder.decode(state)
        self.forget(name)
        return state

    def take_position(self, name: str) -> Any:
        """Return and forget the state of an object that follows the items."""
        return self.take(name)

    def forget(self, name: str) -> None:
        """Forget the state of an object, if there is one."""
        self._tree.pop(name, None)
        if not self._tree:
            self._decoder = None  # frees the payload


@contextmanager
def _damage_reported(name: str = "") -> Iterator[None]:
    where = f"register({name}=…): " if name else ""
    try:
        yield
    except UnusableFileError as error:
        raise UnusableFileError(f"{where}{error}") from error
    # A library may raise anything for a damaged part.
    except Exception as error:
        raise UnusableFileError(f"{where}the checkpoint is damaged ({error})") from error


class _Encoder:
    """Turns values into JSON and binary parts."""

    def __init__(self) -> None:
        self._parts: list[Payload] = []
        self._torch: list[Any] = []
        self._storages: dict[int, tuple[int, Any]] = {}
        """identity of a storage → (its part, the storage)"""

    def encode(self, value: Any, path: str, depth: int) -> Any:
        """Return a value as JSON; ``path`` names it in errors."""
        type_ = type(value)
        if type_ in (str, bool) or value is None:
            return value
        if type_ is float:
            return value if math.isfinite(value) else {"float": struct.pack(">d", value).hex()}
        if type_ is int:
            return value if -_JSON_INT <= value < _JSON_INT else {"int": hex(value)}
        if depth >= _MAX_DEPTH:
            raise StateError(f"{path[:200]}: nested deeper than {_MAX_DEPTH}, or contains itself")
        if type_ is list:
            return self._items(value, path, depth)
        if type_ is dict:
            return self._dict(value, path, depth)
        if type_ in _ITERABLES.values():
            return {type_.__name__: self._items(value, path, depth)}
        return self._collection(value, path, depth) or self._foreign(value, path)

    def finish(self, host: HostMemory | None) -> list[Payload]:
        """Return the binary parts, with storages of tensors copied to ``host`` memory."""
        if self._storages:
            if host is None:
                from fairlead.job.torch.host_state import HostState  # noqa: PLC0415  # as above

                host = HostState()
            numbers, storages = zip(*self._storages.values(), strict=True)
            for number, content in zip(numbers, host.copy_out(storages), strict=True):
                self._parts[number] = content
        if self._torch:  # the last part holds all tensors without a plain storage
            buffer = io.BytesIO()
            sys.modules["torch"].save(self._torch, buffer)
            self._parts.append(buffer.getvalue())
        return self._parts

    def _items(self, values: Iterable[Any], path: str, depth: int) -> list[Any]:
        return [
            self.encode(value, f"{path}[{index}]", depth + 1) for index, value in enumerate(values)
        ]

    def _pairs(self, value: Mapping[Any, Any], path: str, depth: int) -> list[Any]:
        return [
            [
                self.encode(key, f"{path}: key {key!r:.80}", depth + 1),
                self.encode(item, f"{path}[{key!r:.80}]", depth + 1),
            ]
            for key, item in value.items()
        ]

    def _dict(self, value: dict[Any, Any], path: str, depth: int) -> dict[str, Any]:
        if all(type(key) is str for key in value):
            return {
                "dict": {
                    key: self.encode(item, f"{path}[{key!r:.80}]", depth + 1)
                    for key, item in value.items()
                }
            }
        return {"pairs": self._pairs(value, path, depth)}

    def _collection(self, value: Any, path: str, depth: int) -> dict[str, Any] | None:
        """Return a value of a built-in or collections type as JSON; None for another type."""
        type_ = type(value)
        if type_ is OrderedDict:  # a module's state dict has attributes, too
            attributes = self.encode(dict(vars(value)), f"{path} attributes", depth + 1)
            return {"ordered": [self._pairs(value, path, depth), attributes]}
        if type_ is Counter:
            return {"counter": self._pairs(value, path, depth)}
        if type_ is deque:
            return {"deque": [self._items(value, path, depth), value.maxlen]}
        if type_ is bytes or type_ is bytearray:
            return {type_.__name__: self._part(bytes(value))}
        if type_ is complex:
            return {"complex": struct.pack(">dd", value.real, value.imag).hex()}
        return None

    def _part(self, content: bytes) -> int:
        self._parts.append(content)
        return len(self._parts) - 1

    def _storage_part(self, storage: Any) -> int:
        number, _ = self._storages.get(storage._cdata, (None, None))
        if number is None:
            number = self._part(b"")
            self._storages[storage._cdata] = number, storage
        return number

    def _foreign(self, value: Any, path: str) -> dict[str, Any]:
        numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
        is_scalar = numpy is not None and isinstance(value, numpy.generic)
        if numpy is not None and (is_scalar or type(value) is numpy.ndarray):
            array = numpy.asarray(value)
            if not array.dtype.hasobject:
                buffer = io.BytesIO()
                numpy.lib.format.write_array(buffer, array, allow_pickle=False)
                return {"scalar" if is_scalar else "array": self._part(buffer.getvalue())}
        if torch is not None:
            from fairlead.job.torch import tensors  # noqa: PLC0415  # only jobs that use it have it

            encoded: dict[str, Any] | None = tensors.encode(value, self._storage_part)
            if encoded is not None:
                return encoded
            if type(value) in tensors.PLAIN_TYPES:  # sparse or quantized
                self._torch.append(value)
                return {"torch": len(self._torch) - 1}
        name = f"{type(value).__module__}.{type(value).__qualname__}"
        raise StateError(f"{path}: a {name} cannot be stored as data: {_STORABLE}")


class _Decoder:
    """Turns JSON and binary parts back into values."""

    def __init__(self, parts: Sequence[memoryview]) -> None:
        self._parts = parts
        self._torch: list[Any] | None = None
        self._tensors: Any = None
        self.to_copy = False
        """the caller copies the tensors"""

    def decode(self, value: Any) -> Any:
        """Return the value that the encoder wrote."""
        if isinstance(value, list):
            return [self.decode(item) for item in value]
        if not isinstance(value, dict):
            return value
        ((tag, content),) = value.items()
        make = _ITERABLES.get(tag)
        return self._tagged(tag, content) if make is None else make(map(self.decode, content))

    def _tagged(self, tag: str, content: Any) -> Any:
        match tag:
            case "dict":
                return {key: self.decode(item) for key, item in content.items()}
            case "pairs":
                return dict(self._pairs(content))
            case "ordered":
                return self._ordered(*content)
            case "counter":
                return Counter(dict(self._pairs(content)))
            case "deque":
                return deque(map(self.decode, content[0]), content[1])
            case "int":
                return int(content, 16)
            case "float":
                return struct.unpack(">d", bytes.fromhex(content))[0]
            case "complex":
                return complex(*struct.unpack(">dd", bytes.fromhex(content)))
            case "bytes":
                return bytes(self._parts[content])
            case "bytearray":
                return bytearray(self._parts[content])
            case "array" | "scalar":
                array = self._array(content)
                return array if tag == "array" else array[()]
            case "tensor" | "shard" | "torch" | "torch.Size" | "torch.device" | "torch.dtype":
                return self._torch_value(tag, content)
        raise ValueError(f"unknown type {tag!r:.40}")

    def _pairs(self, content: Any) -> list[tuple[Any, Any]]:
        return [(self.decode(key), self.decode(item)) for key, item in content]

    def _ordered(self, pairs: Any, attributes: Any) -> OrderedDict[Any, Any]:
        made = OrderedDict(self._pairs(pairs))
        vars(made).update(self.decode(attributes))
        return made

    def _array(self, number: int) -> Any:
        import numpy as np  # noqa: PLC0415  # only jobs that use it have it

        return np.lib.format.read_array(io.BytesIO(self._parts[number]), allow_pickle=False)

    def _torch_value(self, tag: str, content: Any) -> Any:
        import torch  # noqa: PLC0415  # only jobs that use it have it

        from fairlead.job.torch import shards, tensors  # noqa: PLC0415  # as above

        if tag == "torch":
            if self._torch is None:
                self._torch = old_state.load_tensors(self._parts[-1])
            return self._torch[content]
        if tag == "torch.Size":
            return torch.Size(content)
        if tag == "torch.device":
            return torch.device(content)
        if tag == "torch.dtype":
            return tensors.named_dtype(content)
        if self._tensors is None:
            self._tensors = tensors.TensorReader(self._parts)
        if tag == "shard":
            return shards.Shard.read(content, self.decode(content["local"]))
        return self._tensors.read(content, to_copy=self.to_copy)
