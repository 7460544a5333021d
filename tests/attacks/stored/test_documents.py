"""Files of users cannot exhaust memory or hide a second value, whichever command reads them.

Every reader of YAML, JSON, TOML and gzip files is tried with bombs and duplicate keys.
"""

import gzip
import resource
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from fairlead.files import read_cluster, read_instance, read_speeds, read_trace
from fairlead.files.job_file import read_job_file
from fairlead.files.tenants import read_tenants
from fairlead.files.traces.convert import convert
from fairlead.model.errors import InputError
from fairlead.model.speeds.table import SpeedTable
from fairlead.server.config.loading import load_settings
from fairlead.sim.physics.reader import read_physics

Reader = Callable[[str], object]

YAML: dict[str, Reader] = {
    "cluster": read_cluster,
    "job": read_job_file,
    "tenants": read_tenants,
    "physics": read_physics,
}
ALL: dict[str, Reader] = {
    **YAML,
    "trace": read_trace,
    "converted trace": lambda path: convert(path, SpeedTable({})),
    "speeds": read_speeds,
    "instance": read_instance,
    "settings": lambda path: load_settings({}, {}, Path(path)),
}
_LAUGHS = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [" + ", ".join([f"*a{n - 1}"] * 9) + "]\n" for n in range(1, 12)
)


@cache
def _bomb() -> bytes:
    return gzip.compress(b"a" * (20 << 20))


def _refusal(read: Reader, path: Path) -> str:
    """Return the error of a reader, which must come soon."""
    began = time.process_time()
    with pytest.raises(InputError) as caught:
        read(str(path))
    assert time.process_time() - began < 20
    assert path.name in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("kind", ALL)
def test_gzip_bombs_are_refused_with_the_limit(tmp_path: Path, kind: str) -> None:
    path = tmp_path / ("bomb.yaml" if kind in YAML else "bomb.gz")
    path.write_bytes(_bomb())
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert "unpack to more than 200 times their size: expected at most 16 MiB" in _refusal(
        ALL[kind], path
    )
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 << 10


@pytest.mark.parametrize("kind", YAML)
def test_duplicate_yaml_keys_are_refused_at_every_level(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "document.yaml"
    for text, line in (("x: 1\nx: 2\n", 2), ("x:\n- y:\n    z: 1\n    z: 2\n", 4)):
        path.write_text(text)
        answer = _refusal(YAML[kind], path)
        assert f"document.yaml:{line}" in answer or f"line {line}" in answer
        assert "duplicate field" in answer


@pytest.mark.parametrize("kind", YAML)
def test_yaml_aliases_that_multiply_or_recur_are_refused(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "document.yaml"
    path.write_text(_LAUGHS)
    assert "too many values: expected at most 4,000,000" in _refusal(YAML[kind], path)
    path.write_text("x: &x\n  y: *x\n")
    assert "contains itself" in _refusal(YAML[kind], path)
    path.write_text("x: " + "[" * 70 + "]" * 70)
    assert "nested too deeply: expected at most 64 levels" in _refusal(YAML[kind], path)
    path.write_text("- " * 20_000 + "x")
    assert "nested too deeply" in _refusal(YAML[kind], path)


@pytest.mark.parametrize("value", [".nan", "nan", ".inf", "-inf", "1e999", "9" * 5000])
@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("job", "command: [x]\nweight: {}\n"),
        ("tenants", "tenants:\n- {{id: a, weight: {}}}\n"),
        ("cluster", "nodes:\n- id: a\n  devices: {{v100: {}}}\n"),
    ],
)
def test_numbers_that_are_not_finite_are_refused(
    tmp_path: Path, kind: str, text: str, value: str
) -> None:
    path = tmp_path / "document.yaml"
    path.write_text(text.format(value))
    _refusal(YAML[kind], path)


@pytest.mark.parametrize("kind", ["job", "tenants", "physics", "instance", "speeds"])
def test_duplicate_json_keys_are_refused(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "document.json"
    path.write_text('{"tenants": [{"id": "a", "id": "b"}]}')
    assert "duplicate" in _refusal(ALL[kind], path)


@pytest.mark.parametrize(
    "text", ["port = " + "[" * 100_000, "port = " + "9" * 5000, "port = 1\nport = 2\n"]
)
def test_hostile_settings_are_one_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "fairlead.toml"
    path.write_text(text)
    _refusal(ALL["settings"], path)


def test_a_genuine_file_that_shrinks_well_is_read(tmp_path: Path) -> None:
    path = tmp_path / "speeds.csv.gz"
    head = "workload,gang,accelerator,placement,partner,steps_per_s,partner_steps_per_s\n"
    rows = "".join(f"w{n},1,v100,,,1,\n" for n in range(20_000))
    path.write_bytes(gzip.compress((head + rows).encode()))
    assert len(read_speeds(str(path)).steps_per_s) == 20_000
