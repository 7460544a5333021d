"""A good and a hostile tenant with a Unix user each, for attacks on engines with ``users``."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.support import unix_users

GOOD, HOSTILE = f"good{os.getpid()}", f"evil{os.getpid()}"
"""tenants, each with a Unix user of its name"""
PYTHON = shutil.which("python3", path="/usr/bin:/usr/local/bin")
"""interpreter that both users can run"""


@contextmanager
def two_tenants() -> Iterator[tuple[Path, pytest.MonkeyPatch]]:
    """Make both users; yield a directory that they may enter, and a patch of the environment."""
    problem = unix_users.missing()
    if problem or PYTHON is None:
        pytest.skip(problem or "no Python that other users can run")
    root = Path(tempfile.mkdtemp(prefix="fairlead-attack-"))
    root.chmod(0o755)
    with unix_users.throw_away_users([GOOD, HOSTILE]), pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(unix_users.importable_package(root)))
        yield root, patch
    shutil.rmtree(root, ignore_errors=True)
