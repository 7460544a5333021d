"""Checkup of what the Unix users of tenants can reach on this machine."""

from collections.abc import Iterator
from pathlib import Path

from fairlead.engines.shared.checkup.findings import Finding

_PACKAGE = Path(__file__).parents[3]
_ENTER, _READ = 0o001, 0o004


def check_installation(package: Path = _PACKAGE) -> Iterator[Finding]:
    """Yield a finding if other users than the server's cannot import Fairlead."""
    wanted = dict.fromkeys(package.parents, _ENTER)
    wanted |= dict.fromkeys((package, package.parent), _ENTER | _READ)  # Python lists these
    closed = [path for path, mode in wanted.items() if path.stat().st_mode & mode != mode]
    if closed:
        outermost = min(closed, key=lambda path: len(path.parts))
        problem = f"tenants' users cannot import Fairlead: {outermost} is closed to them"
        fix = f"chmod o+rx {outermost}, or install Fairlead for all users, as in /opt"
        yield Finding("isolation", "wrong", problem, fix)
