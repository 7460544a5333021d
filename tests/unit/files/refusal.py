"""Reads bad files and returns the one error that names them."""

from collections.abc import Callable
from pathlib import Path

import pytest

from fairlead.files.parsing.text import shorten
from fairlead.model.errors import InputError

Bytes = bytes | str


def refused(
    tmp_path: Path, read: Callable[[Path], object], data: Bytes, suffix: str
) -> InputError:
    path = tmp_path / f"file{suffix}"
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    with pytest.raises(InputError) as caught:
        read(path)
    error = caught.value
    assert error.source == shorten(str(path))
    assert len(error.problem) <= 220
    assert "\n" not in str(error)
    assert error.fix
    return error
