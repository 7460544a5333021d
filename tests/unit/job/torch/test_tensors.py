"""Tensors as data: every bit comes back, tied weights stay tied, and no code is run."""

import io
import json
import mmap
import pickle
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from fairlead.job.registration import adapt  # noqa: E402  # needs PyTorch
from fairlead.job.state_format import SavedState, decode_state, encode_state  # noqa: E402
from fairlead.job.torch import HostState  # noqa: E402
from fairlead.untrusted_file import UnusableFileError  # noqa: E402

DTYPES = (
    *("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"),
    *("int64", "uint8", "bool", "complex64"),
)


def bits(tensor: Any) -> bytes:
    return bytes(tensor.detach().clone().contiguous().reshape(-1).view(torch.uint8).numpy())


def test_tensors_of_every_type_and_layout_come_back_bit_by_bit() -> None:
    whole = torch.randn(6, 4)
    tensors = {
        **{name: torch.arange(6).to(getattr(torch, name)) for name in DTYPES},
        "channels last": torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
        "view": whole[1:5:2, 1:],
        "transposed": whole.t(),
        "conjugate": torch.randn(3, dtype=torch.complex64).conj(),
        "number": torch.tensor(2.5),
        "nothing": torch.empty(0, 3),
        "nan": torch.tensor([0x7FC00ABC], dtype=torch.int32).view(torch.float32),
        "parameter": torch.nn.Parameter(torch.ones(2), requires_grad=False),
        "sparse": torch.eye(3).to_sparse(),
    }
    others = {"size": torch.Size([2, 3]), "dtype": torch.bfloat16, "device": torch.device("cpu")}
    state = {"a": {"tensors": tensors, **others}}
    restored = decode_state(encode_state(state))["a"]
    for name, tensor in tensors.items():
        again = restored["tensors"][name]
        assert (type(again), again.dtype, again.shape) == (
            type(tensor),
            tensor.dtype,
            tensor.shape,
        )
        if name == "sparse":
            assert torch.equal(again.to_dense(), tensor.to_dense())
        else:
            assert bits(again.resolve_conj()) == bits(tensor.resolve_conj()), name
    assert restored["tensors"]["channels last"].stride() == tensors["channels last"].stride()
    assert not restored["tensors"]["parameter"].requires_grad
    assert {name: restored[name] for name in others} == others


def test_tied_weights_are_stored_once_and_stay_tied() -> None:
    weight = torch.randn(100, 100)
    payload = encode_state({"model": {"in": weight, "out": weight, "row": weight[3]}})
    assert len(payload) < 1.5 * 4 * weight.numel()
    restored = decode_state(payload)["model"]
    restored["in"][3, 0] = 7.0
    assert restored["out"][3, 0] == restored["row"][0] == 7.0


def test_a_tensor_beyond_its_bytes_is_refused() -> None:
    payload = encode_state({"model": {"weight": torch.ones(4)}})
    for old, new in (
        (b'"shape": [4]', b'"shape": [9]'),
        (b'"offset": 0', b'"offset": 7'),
        (b'"dtype": "float32"', b'"dtype": "loading"'),
    ):
        with pytest.raises(UnusableFileError, match=r"register\(model=…\).*damaged"):
            SavedState(payload.replace(old, new)).take("model")


class Evil:
    """Runs a command when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> Any:
        return subprocess.call, (["touch", str(self._path)],)


def test_code_in_a_checkpoint_is_refused_by_the_name_of_its_object(tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    content = io.BytesIO()
    torch.save([Evil(ran)], content)
    for part in (content.getvalue(), pickle.dumps([Evil(ran)], protocol=2)):
        header = b'{"tree": {"model": {"torch": 0}}, "sizes": [%d]}' % len(part)
        payload = b"FLSTATE1" + len(header).to_bytes(8, "big") + header + part
        with pytest.raises(UnusableFileError, match=r"register\(model=…\): .*code.* never run"):
            decode_state(payload)
    assert not ran.exists()


def test_other_objects_of_pytorch_are_restored_in_place() -> None:
    generator = torch.Generator().manual_seed(3)
    tensor, numbers = torch.zeros(3), [1, 2]
    state = {
        "generator": adapt("g", generator).state_dict(),
        "tensor": {"tensor": torch.ones(3)},
        "numbers": [5, 6, 7],
    }
    expected = torch.rand(4, generator=generator)
    restored = decode_state(encode_state(state))
    for name, thing in (("generator", generator), ("tensor", tensor), ("numbers", numbers)):
        adapt(name, thing).load_state_dict(restored[name])
    assert torch.equal(torch.rand(4, generator=generator), expected)
    assert (tensor.tolist(), numbers) == ([1.0, 1.0, 1.0], [5, 6, 7])
    with pytest.raises(TypeError, match=r"register\(best=…\): a float has no state_dict\(\)"):
        adapt("best", 3.5)


def test_a_released_state_takes_no_device_memory_and_returns_in_place() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8))
    model[1].weight = model[0].weight
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(2, 8)).sum().backward()
    optimizer.step()
    tensors = [*model.state_dict().values()]
    tensors += [value for state in optimizer.state.values() for value in state.values()]
    storages = list({t.untyped_storage()._cdata: t.untyped_storage() for t in tensors}.values())
    before = [bits(tensor) for tensor in tensors]
    host = HostState()
    for _ in range(2):  # the second time uses the same host memory
        host.release(storages)
        assert host.is_released
        assert {storage.nbytes() for storage in storages} == {0}
        with pytest.raises(RuntimeError, match="restore it first"):
            host.release(storages)
        host.restore()
        assert [bits(tensor) for tensor in tensors] == before
    assert host.nbytes >= sum(storage.nbytes() for storage in storages)
    optimizer.step()
    assert model[1].weight is model[0].weight


def test_training_may_change_a_tensor_while_its_copy_is_written() -> None:
    from fairlead.job.state_format import encode_chunks  # noqa: PLC0415  # beside its use

    weight, host = torch.zeros(1000), HostState()
    chunks = encode_chunks({"model": {"weight": weight}}, host)
    thread = threading.Thread(target=weight.fill_, args=(1.0,))
    thread.start()
    thread.join()
    assert decode_state(b"".join(chunks))["model"]["weight"].sum() == 0.0


def test_a_released_state_is_written_from_the_copies_that_it_returns_from() -> None:
    from fairlead.job.state_format import encode_chunks  # noqa: PLC0415  # beside its use

    weight, other, host = torch.arange(1000.0), torch.ones(10), HostState()
    storages = [weight.untyped_storage(), other.untyped_storage()]
    for offset in (0.0, 5.0):  # the second time the copies of the first are outdated
        weight += offset
        other += offset
        chunks = encode_chunks({"model": {"weight": weight}}, host)
        host.release(storages, copied=True)
        assert [storage.nbytes() for storage in storages] == [0, 0]
        written = decode_state(b"".join(chunks))["model"]["weight"]
        host.restore()
        assert torch.equal(written, torch.arange(1000.0) + offset)
        assert torch.equal(weight, written)
        assert other.tolist() == [1.0 + offset] * 10


def in_memory(payload: bytes) -> memoryview:
    """Return a payload as it is read from a large file: in memory that may be written."""
    memory = mmap.mmap(-1, len(payload))
    memory[:] = payload
    return memoryview(memory)


def test_large_tensors_are_copied_once_from_the_payload() -> None:
    weight, small = torch.randn(200, 200), torch.arange(3.0)
    state = {"model": {"weight": weight, "tied": weight, "step": small}}
    view = in_memory(encode_state({**state, "kept": state["model"]}))
    saved = SavedState(view)
    model, kept = saved.take("model", to_copy=True), saved.take("kept")
    view[:] = bytes(len(view))
    assert model["weight"].sum() == 0.0  # in the payload's memory
    assert torch.equal(model["step"], small)  # an optimizer keeps such a tensor
    assert torch.equal(kept["weight"], weight)
    kept["weight"][0, 0] = 7.0
    assert kept["tied"][0, 0] == 7.0


def test_payloads_of_earlier_versions_without_alignment_are_read() -> None:
    state = {"model": {"text": b"abc", "weight": torch.randn(200, 200)}}
    payload = encode_state(state)
    start = 16 + int.from_bytes(payload[8:16], "big")
    header = json.loads(payload[16:start])
    parts = []
    for size in header["sizes"]:
        parts.append(payload[start : start + size])
        start += -(-size // 64) * 64
    del header["alignment"]
    text = json.dumps(header).encode()
    old = b"FLSTATE1" + len(text).to_bytes(8, "big") + text + b"".join(parts)
    for one in (old, in_memory(old)):
        restored = SavedState(one).take("model", to_copy=True)
        assert restored["text"] == b"abc"
        assert torch.equal(restored["weight"], state["model"]["weight"])
