"""The checkup of what tenants' users can reach."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlead.engines.shared.checkup.tenant_access import check_installation


@pytest.fixture
def home() -> Iterator[Path]:
    """Yield a directory outside the private one of pytest."""
    with tempfile.TemporaryDirectory() as made:
        if list(check_installation(Path(made).parent)):
            pytest.skip("the temporary directory is closed to other users")
        yield Path(made)


def test_the_outermost_directory_that_is_closed_is_named(home: Path) -> None:
    package = home / "venv" / "site-packages" / "fairlead"
    package.mkdir(parents=True)
    opened = [home, package.parents[1], package.parent, package]
    for path in opened:
        path.chmod(0o700)
    for path, mode in zip(opened, (0o711, 0o711, 0o755, 0o755), strict=True):
        (finding,) = check_installation(package)
        assert finding.found == f"tenants' users cannot import Fairlead: {path} is closed to them"
        assert finding.fix.startswith(f"chmod o+rx {path}, or ")
        path.chmod(mode)
    assert list(check_installation(package)) == []
    package.parent.chmod(0o711)  # Python could enter it, but not list it
    assert len(list(check_installation(package))) == 1
