"""Checkup of what the Unix users of tenants can reach on this machine."""

import shlex
from collections.abc import Iterator
from pathlib import Path

from fairlead.engines.shared.checkup.findings import Finding

_PACKAGE = Path(__file__).parents[3]
_ENTER, _READ = 0o001, 0o004


def check_installation(package: Path = _PACKAGE) -> Iterator[Finding]:
    """Yield a finding if other users than the server's cannot import Fairlead."""
    parents = {*package.parents, *package.resolve().parents}
    sources = sorted(package.rglob("*.py"))
    wanted = dict.fromkeys(sorted(parents, key=lambda path: len(path.parts)), _ENTER)
    wanted[package.parent] = _ENTER | _READ  # Python lists it
    wanted |= dict.fromkeys((package, *(source.parent for source in sources)), _ENTER | _READ)
    for path, mode in (wanted | dict.fromkeys(sources, _READ)).items():
        if path.stat().st_mode & mode != mode:
            problem = f"tenants' users cannot import Fairlead: {path} is closed to them"
            letters = {_ENTER: "x", _READ: "r", _ENTER | _READ: "rx"}[mode]
            fix = f"chmod o+{letters} {shlex.quote(str(path))}, or install Fairlead for all users"
            yield Finding("isolation", "wrong", problem, f"{fix}, as in /opt")
            return
