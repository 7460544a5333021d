"""A reader of any bytes returns a value or raises InputError."""

import gzip
import json
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fairlead.files import read_cluster, read_instance, read_speeds, read_trace
from fairlead.files.traces.convert import convert
from fairlead.files.traces.formats import LOG_FORMATS, LogFormat
from fairlead.model.errors import InputError

Reader = Callable[[Path], object]
SPEEDS = read_speeds("gandiva-fair")


def converter(form: LogFormat | None) -> Reader:
    return lambda path: convert(path, SPEEDS, form=form)


READERS: dict[str, Reader] = {
    "cluster": read_cluster,
    "speeds": read_speeds,
    "trace": read_trace,
    "instance": read_instance,
    **{f"convert {form}": converter(form) for form in (None, *LOG_FORMATS)},
}
SEEDS = [
    b"job_id,arrival_s,workload,gang,total_steps,accelerators\na,0,LSTM,1,10,v100;k80\n",
    b'{"job_id": "a", "arrival_s": 0, "workload": "w", "gang": 1, "total_steps": 5}\n',
    b"workload,gang,accelerator,placement,partner,steps_per_s,partner_steps_per_s\n"
    b"w,1,v100,,,1,\nw,1,v100,spread,x,1,2\n",
    b'{"v100": {"(\'w\', 1)": {"null": 1, "(\'w\', 1)": [1, 2]}}}',
    b"nodes:\n- id: a\n  repeat: 2\n  devices: {v100: 4}\naccelerators: {v100: {memory_gib: 1}}\n",
    b'{"cluster": {"v100": 2}, "jobs": [{"id": "a", "speeds": {"v100": 1}}], "tenants":'
    b' [{"id": "x", "parent": "y"}], "pairs": [], "usd_per_hour": {"v100": 1}}',
    b"w\tc\td\t-n\t1\t10\t1\t1\t-1\t0\n",
    b"w\tc\t-n\t1\t10\t0\t1\n",
    b"vc,seq,arrival_s,num_gpus,duration_s\nx,0,0,1,5\n",
    b"job_id,submission_time,duration,num_gpu\na,0,5,1\n",
    b"JobID|Submit|ElapsedRaw|AllocTRES|Account\n1|2026-01-01T00:00:00|5|gres/gpu=1|a\n",
]
PIECES = [
    b"", b"\n", b"\r", b",", b"|", b"\t", b'"', b"'", b"{", b"}", b"[", b"]", b":", b"#", b"&a",
    b"*a", b"- ", b"null", b"true", b"NaN", b"-1", b"0", b"1e999", b"1e308", b"9" * 400,
    b"9" * 5000, b"\x00", b"\xff", b"\xef\xbb\xbf", "é٣".encode(), b"\x85", b"\x1f\x8b", b"=",
    b"/", b"x" * 200,
]  # fmt: skip


def mutated() -> st.SearchStrategy[bytes]:
    """Valid input with a few pieces put in or cut out."""

    @st.composite
    def build(draw: st.DrawFn) -> bytes:
        data = draw(st.sampled_from(SEEDS))
        for _ in range(draw(st.integers(0, 4))):
            at = draw(st.integers(0, len(data)))
            cut = draw(st.integers(0, 6))
            data = data[:at] + draw(st.sampled_from(PIECES)) + data[at + cut :]
        return data

    return build()


def json_values() -> st.SearchStrategy[bytes]:
    leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
    words = st.sampled_from(
        ["cluster", "jobs", "id", "speeds", "v100", "pairs", "tenants", "gang"]
    )
    nested = st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=4),
        max_leaves=12,
    )
    return nested.map(lambda value: json.dumps(value).encode())


@pytest.mark.parametrize("name", READERS)
@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.binary(max_size=200) | mutated() | json_values(), packed=st.booleans())
def test_any_bytes_give_a_value_or_an_input_error(name: str, data: bytes, packed: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "file.yaml"
        path.write_bytes(gzip.compress(data) if packed else data)
        result = outcome(READERS[name], path)
    if isinstance(result, InputError):
        assert "\n" not in str(result)
        assert len(result.problem) < 300
        assert result.fix


def outcome(read: Reader, path: Path) -> object:
    try:
        return read(path)
    except InputError as error:
        return error


@settings(max_examples=300, deadline=None)
@given(text=st.text(alphabet="v1=/,.-k \n\x00é", max_size=20) | st.text(max_size=20))
def test_any_cluster_text_gives_a_cluster_or_an_input_error(text: str) -> None:
    try:
        cluster = read_cluster(text)
    except InputError:
        return
    assert cluster.counts.sum() > 0
