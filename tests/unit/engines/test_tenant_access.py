"""The checkup of what tenants' users can reach."""

import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlead.engines.shared.checkup.tenant_access import check_installation


@pytest.fixture
def home() -> Iterator[Path]:
    """Yield a directory outside the private one of pytest."""
    with tempfile.TemporaryDirectory() as made:
        home = Path(made)
        home.chmod(0o755)
        if list(check_installation(home)):
            pytest.skip("the temporary directory is closed to other users")
        yield home


def test_the_outermost_directory_that_is_closed_is_named(home: Path) -> None:
    package = home / "my venv" / "site-packages" / "fairlead"
    (package / "job").mkdir(parents=True)
    module = package / "job" / "run.py"
    module.touch()
    wanted = {
        home: "x",
        package.parents[1]: "x",
        package.parent: "rx",  # Python lists it
        package: "rx",
        module.parent: "rx",
        module: "r",
    }
    for path in wanted:
        path.chmod(0o700)
    for path, letters in wanted.items():
        (finding,) = check_installation(package)
        assert finding.found == f"tenants' users cannot import Fairlead: {path} is closed to them"
        command, _, _ = finding.fix.partition(", or ")
        assert command.startswith(f"chmod o+{letters} ")
        subprocess.run(command, shell=True, check=True)
    assert list(check_installation(package)) == []


def test_directories_behind_links_are_checked(home: Path) -> None:
    closed = home / "closed"
    (closed / "venv" / "fairlead").mkdir(parents=True)
    closed.chmod(0o700)
    (home / "opt").symlink_to(closed / "venv")
    (finding,) = check_installation(home / "opt" / "fairlead")
    assert f"{closed} is closed" in finding.found
