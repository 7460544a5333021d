"""States are stored as data: every bit comes back, and nothing in a file is ever run."""

import io
import math
import pickle
import random
import struct
import subprocess
import sys
from collections import Counter, OrderedDict, deque
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fairlead.job.state_format import StateError, decode_state, encode_state
from fairlead.untrusted_file import UnusableFileError

VALUES: dict[str, Any] = {
    "none": None,
    "booleans": [True, False],
    "integers": [0, -1, 2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 10**6000, -(7**5000)],
    "floats": [0.0, -0.0, 0.1, 5e-324, 1.7976931348623157e308, math.inf, -math.inf],
    "complex": complex(-0.0, math.inf),
    "text": ["", "ä€😀", "\ud800 lone", "\0", '{"dict": 1}'],
    "bytes": [b"", b"\x80\x05", bytes(range(256))],
    "nested": [(1, (2, [3, (), {}])), {"dict": {"pairs": [], "a": {"tuple": 1}}}],
    "keys": {1: "int", True + 1: "two", 2.5: "float", (1, "a"): "tuple", None: 0, b"x": 1},
    "sets": [{1, 2}, frozenset({"a"}), set()],
    "collections": [OrderedDict([(2, 1), (1, 2)]), Counter("aab"), deque([1, 2], maxlen=3)],
    "random": random.Random(7).getstate(),
}


def same(before: Any, after: Any) -> bool:
    """Return whether two values are equal in type, order and every bit."""
    if type(before) is not type(after):
        return False
    if isinstance(before, float):
        return struct.pack(">d", before) == struct.pack(">d", after)
    if isinstance(before, dict):
        keys = all(map(same, before, after))
        return (
            len(before) == len(after) and keys and all(map(same, before.values(), after.values()))
        )
    if isinstance(before, list | tuple | deque):
        return len(before) == len(after) and all(map(same, before, after))
    if isinstance(before, np.ndarray | np.generic):
        alike = before.dtype == after.dtype and before.shape == after.shape
        return bool(alike and before.tobytes() == after.tobytes())
    return bool(before == after)


@pytest.mark.parametrize("name", VALUES)
def test_every_value_comes_back_bit_by_bit(name: str) -> None:
    state = {"thing": {"value": VALUES[name]}}
    restored = decode_state(encode_state(state))
    assert same(restored, state)


def test_nan_keeps_its_payload_and_bytearrays_their_type() -> None:
    nan = struct.unpack(">d", bytes.fromhex("7ff8000000000abc"))[0]
    restored = decode_state(encode_state({"a": {"nan": nan, "buffer": bytearray(b"ab")}}))["a"]
    assert struct.pack(">d", restored["nan"]).hex() == "7ff8000000000abc"
    assert same(restored["buffer"], bytearray(b"ab"))


def test_numpy_arrays_and_generators_come_back_bit_by_bit() -> None:
    generator = np.random.default_rng(3)
    legacy = np.random.RandomState(4)
    arrays = [
        generator.normal(size=(3, 4)),
        np.asfortranarray(generator.normal(size=(3, 4)).astype(">f4")),
        generator.normal(size=(6, 6))[::2, ::3],
        np.zeros((0, 5), dtype=np.int8),
        np.array(2.5),
        np.array(["a", "bcd"]),
        np.array([("x", 1.5)], dtype=[("name", "U3"), ("value", "f8")]),
        np.array([np.nan, -0.0]),
        np.array(["2020-01-01"], dtype="datetime64[D]"),
        *(np.float64(0.1), np.float16(np.inf), np.int64(-5), np.bool_(True), np.str_("a")),
    ]
    state = {
        "a": {"arrays": arrays, "rng": generator.bit_generator.state, "old": legacy.get_state()}
    }
    restored = decode_state(encode_state(state))
    assert same(restored, state)
    restored["a"]["arrays"][0][0, 0] = 1.0  # arrays can be written, as before
    expected = generator.normal(size=5)
    again = np.random.default_rng(0)
    again.bit_generator.state = restored["a"]["rng"]
    assert (again.normal(size=5) == expected).all()


def test_pytorch_state_dicts_come_back_bit_by_bit() -> None:
    torch = pytest.importorskip("torch")
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4)).bfloat16()
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(2, 3, dtype=torch.bfloat16)).sum().backward()
    optimizer.step()
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    for payload in (encode_state(state), pickle.dumps(state, protocol=5)):
        restored = decode_state(payload)
        assert restored["model"]._metadata == state["model"]._metadata
        for name, tensor in state["model"].items():
            assert torch.equal(restored["model"][name], tensor)
        assert str(restored["optimizer"]) == str(state["optimizer"])


class Thing:
    """An object without a data form."""


@pytest.mark.parametrize(
    "value",
    [Thing(), lambda: 1, np.array([Thing()], dtype=object), Path("a"), subprocess],
    ids=["object", "function", "object array", "path", "module"],
)
def test_an_object_that_is_not_data_is_named_with_the_way_out(value: object) -> None:
    with pytest.raises(StateError, match=r"register\(stats=…\)\['seen'\]\[1\]: a .*state_dict"):
        encode_state({"stats": {"seen": [1, value]}})


def test_a_state_that_contains_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(StateError, match="nested deeper than 100, or contains itself"):
        encode_state({"loop": {"a": loop}})


def test_states_of_earlier_versions_are_read_as_data() -> None:
    arrays = [np.arange(6.0).reshape(2, 3), np.asfortranarray(np.eye(3)), np.float32(0.1)]
    old = {"model": {**VALUES, "arrays": arrays, "big": np.arange(3, dtype=">i4")}}
    assert same(decode_state(pickle.dumps(old, protocol=pickle.HIGHEST_PROTOCOL)), old)


class Evil:
    """Runs a command when it is unpickled."""

    def __init__(self, call: Any, *arguments: object) -> None:
        self._reduced = call, arguments

    def __reduce__(self) -> Any:
        return self._reduced


def test_a_pickle_with_code_is_refused_and_not_run(tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    for evil in (
        Evil(subprocess.call, ["touch", str(ran)]),
        Evil(eval, f"open({str(ran)!r}, 'w')"),
        Evil(Path.touch, ran),
        Evil(getattr, ran, "touch"),
    ):
        payload = pickle.dumps({"model": {"weights": evil}})
        with pytest.raises(UnusableFileError, match=r"holds code .* never run"):
            decode_state(payload)
    assert not ran.exists()


def test_a_pickle_inside_an_array_or_a_tensor_is_not_run(tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    evil = Evil(subprocess.call, ["touch", str(ran)])
    array = np.array([evil], dtype=object)
    part = io.BytesIO()
    np.save(part, array)
    header = b'{"tree": {"a": {"array": 0}}, "sizes": [%d]}' % len(part.getvalue())
    payload = b"FLSTATE1" + len(header).to_bytes(8, "big") + header + part.getvalue()
    with pytest.raises(UnusableFileError, match="damaged"):
        decode_state(payload)
    tensors = pickle.dumps([evil])
    header = b'{"tree": {"a": {"torch": 0}}, "sizes": [%d]}' % len(tensors)
    with pytest.raises(UnusableFileError):
        decode_state(b"FLSTATE1" + len(header).to_bytes(8, "big") + header + tensors)
    assert not ran.exists()


def test_damaged_payloads_are_refused() -> None:
    payload = encode_state({"a": {"x": np.arange(4), "y": b"bytes"}})
    assert decode_state(payload)["a"]["y"] == b"bytes"
    rng = random.Random(1)
    for _ in range(300):
        damaged = bytearray(payload)
        del damaged[rng.randrange(len(payload)) :]
        if rng.random() < 0.5 and damaged:
            damaged = bytearray(payload)
            damaged[rng.randrange(len(payload))] ^= 1 << rng.randrange(8)
        try:
            decode_state(bytes(damaged))
        except UnusableFileError:
            continue
        assert len(damaged) == len(payload)  # a flipped bit may give another valid value


def test_the_job_library_needs_no_other_package() -> None:
    code = (
        "import sys; sys.modules['numpy'] = sys.modules['torch'] = None;"
        " from fairlead.job.state_format import decode_state, encode_state;"
        " assert decode_state(encode_state({'a': {'b': 1}})) == {'a': {'b': 1}}"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
