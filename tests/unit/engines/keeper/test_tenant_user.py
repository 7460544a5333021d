"""The Unix users of tenants."""

import os
import pwd
import stat
from pathlib import Path

import pytest

from fairlead.engines.keeper.confinement.tenant_user import (
    allow_traversal,
    find_user,
    make_directory,
)
from fairlead.model.errors import InputError


def test_the_user_of_a_tenant_has_its_name() -> None:
    entry = pwd.getpwnam("nobody")
    user = find_user("nobody")
    assert (user.uid, user.gid) == (entry.pw_uid, entry.pw_gid)
    assert user.environment["HOME"] == entry.pw_dir
    assert user.environment["USER"] == user.environment["LOGNAME"] == "nobody"


@pytest.mark.parametrize("tenant", ["no-such-user", "a\0b", "", "root"])
def test_a_tenant_without_a_usable_user_is_refused(tenant: str) -> None:
    with pytest.raises(InputError, match=r"^tenant: .*Unix user"):
        find_user(tenant)


def test_the_servers_own_user_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: pwd.getpwnam("nobody").pw_uid)
    with pytest.raises(InputError, match="the server's user"):
        find_user("nobody")


def test_tenants_pass_through_the_data_directory_and_read_nothing(tmp_path: Path) -> None:
    for name in ("fairlead.toml", "admin.token"):
        (tmp_path / name).write_text("secret")
    (tmp_path / "quarantine").mkdir(mode=0o755)
    allow_traversal(tmp_path)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert modes == {
        "fairlead.toml": 0o600,
        "admin.token": 0o600,
        "quarantine": 0o700,
        "leases": 0o711,
        "jobs": 0o711,
    }
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o711


def test_a_link_is_not_taken_for_a_directory(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir(mode=0o755)
    (tmp_path / "link").symlink_to("outside")
    with pytest.raises(OSError, match="link"):
        make_directory(tmp_path / "link", 0o700)
    assert stat.S_IMODE((tmp_path / "outside").stat().st_mode) == 0o755
