"""Attacks on orders: they hold secrets and lease tokens, and only their keepers may read them."""

import os
import pwd
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.attacks.hostile import NOBODY, as_root, order

from fairlead.atomic_file import replace_file
from fairlead.engines.keeper import lease_dir
from fairlead.engines.ray import leases as ray_leases
from fairlead.engines.slurm import leases as slurm_leases
from fairlead.engines.slurm.handover import hand_over
from fairlead.job import checkpoint


@pytest.fixture
def reachable() -> Iterator[Path]:
    """Return a directory that all users can traverse."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        Path(name).chmod(0o711)
        yield Path(name)


@pytest.fixture(autouse=True)
def _open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def readable_by_tenant(path: Path) -> bool:
    done = subprocess.run(
        ["cat", str(path)], user=NOBODY, group=NOBODY, extra_groups=[], check=False,
        capture_output=True,
    )  # fmt: skip
    return done.returncode == 0


def test_orders_are_private_on_every_engine(tmp_path: Path) -> None:
    lease_dir.write_order(tmp_path / "local" / "5", order(tmp_path))
    ray_leases.write(tmp_path / "ray" / "5", order(tmp_path))
    slurm_leases.write(tmp_path / "slurm" / "5", order(tmp_path), "fairlead-5", {})
    orders = list(tmp_path.rglob("order.json"))
    assert len(orders) == 4
    for path in orders:
        assert mode(path) == 0o600
        assert mode(path.parent) == 0o700


def test_an_order_in_a_prepared_directory_is_private(tmp_path: Path) -> None:
    (tmp_path / "5").mkdir(mode=0o777)
    lease_dir.write_order(tmp_path / "5", order(tmp_path))
    assert mode(tmp_path / "5") == 0o700
    assert mode(tmp_path / "5" / "order.json") == 0o600


@pytest.mark.parametrize("kind", ["link", "open file"])
def test_a_prepared_temporary_file_is_not_used(tmp_path: Path, kind: str) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious", encoding="ascii")
    victim.chmod(0o666)
    temporary = tmp_path / f"order.json.{os.getpid()}.tmp"
    if kind == "link":
        temporary.symlink_to(victim)
    else:
        os.link(victim, temporary)
    replace_file(tmp_path / "order.json", b"secret", mode=0o600)
    assert victim.read_text(encoding="ascii") == "precious"
    assert not (tmp_path / "order.json").is_symlink()
    assert mode(tmp_path / "order.json") == 0o600


@as_root
def test_only_the_tenant_reads_its_order(reachable: Path) -> None:
    made = order(reachable)
    (reachable / "leases").mkdir(mode=0o711)
    (part,) = slurm_leases.write(reachable / "leases" / "5", made, "fairlead-5", {})
    hand_over(part, pwd.getpwuid(NOBODY))
    assert readable_by_tenant(part.directory / "order.json")
    assert not readable_by_tenant(part.directory.parent / "order.json")
    assert mode(part.directory / "order.json") == 0o600
    assert (part.directory / "order.json").stat().st_uid == NOBODY


@as_root
def test_the_tenant_reads_files_that_the_server_writes_later(reachable: Path) -> None:
    made = order(reachable)
    for name in ("leases", "jobs"):
        (reachable / name).mkdir(mode=0o711)
    (reachable / "jobs" / "j1").mkdir(mode=0o711)
    (part,) = slurm_leases.write(reachable / "leases" / "5", made, "fairlead-5", {})
    hand_over(part, pwd.getpwuid(NOBODY))
    lease_dir.write_json(part.directory / "stop", {"grace_s": 1.0})
    lock = lease_dir.try_lock(part.directory)
    assert lock is not None
    lock.close()
    checkpoint.raise_fence(made.checkpoint_dir, 5)
    for path in (
        part.directory / "stop",
        part.directory / "alive",
        Path(made.checkpoint_dir) / "fence",
        Path(made.checkpoint_dir) / "lock",
    ):
        assert path.stat().st_uid == NOBODY, path
        assert readable_by_tenant(path), path


@as_root
def test_handing_over_changes_no_file_outside_the_lease(reachable: Path) -> None:
    made = order(reachable)
    shadow = reachable / "shadow"
    shadow.write_text("root's", encoding="ascii")
    hard = reachable / "hard"
    hard.write_text("root's", encoding="ascii")
    outside = reachable / "outside"
    outside.mkdir(mode=0o755)
    for name in (made.checkpoint_dir, made.log_dir):
        Path(name).mkdir(parents=True)
        os.chown(name, NOBODY, NOBODY)
        (Path(name) / "5.0.log").symlink_to(shadow)
        (Path(name) / "deep").symlink_to(outside)
        os.link(hard, Path(name) / "lock")
        os.link(hard, Path(name) / "1-1.0.ckpt")
    (part,) = slurm_leases.write(reachable / "leases" / "5", made, "fairlead-5", {})
    hand_over(part, pwd.getpwuid(NOBODY))
    assert [path.stat().st_uid for path in (shadow, hard, outside)] == [0, 0, 0]
    assert mode(outside) == 0o755


@as_root
@pytest.mark.parametrize("name", ["checkpoint_dir", "log_dir"])
def test_a_link_instead_of_a_directory_is_not_handed_over(reachable: Path, name: str) -> None:
    made = order(reachable)
    outside = reachable / "outside"
    outside.mkdir(mode=0o755)
    target = Path(getattr(made, name))
    target.parent.mkdir(parents=True, exist_ok=True)
    target.symlink_to(outside)
    (part,) = slurm_leases.write(reachable / "leases" / "5", made, "fairlead-5", {})
    with pytest.raises(OSError, match=r"checkpoint|logs"):
        hand_over(part, pwd.getpwuid(NOBODY))
    assert outside.stat().st_uid == 0
    assert mode(outside) == 0o755


@as_root
@pytest.mark.parametrize("name", ["stop", "alive", "lock", "fence"])
def test_the_server_writes_through_no_link_of_a_tenant(reachable: Path, name: str) -> None:
    made = order(reachable)
    victim = reachable / "victim"
    (part,) = slurm_leases.write(reachable / "leases" / "5", made, "fairlead-5", {})
    hand_over(part, pwd.getpwuid(NOBODY))
    for directory in (part.directory, Path(made.checkpoint_dir)):
        (directory / name).symlink_to(victim)
        (directory / f"{name}.{os.getpid()}.tmp").symlink_to(victim)
    lease_dir.write_json(part.directory / "stop", {"grace_s": 1.0})
    lock = lease_dir.try_lock(part.directory)
    assert lock is not None
    lock.close()
    try:
        checkpoint.raise_fence(made.checkpoint_dir, 5)
    except OSError:
        assert name in ("lock", "fence")
    assert not victim.exists()
