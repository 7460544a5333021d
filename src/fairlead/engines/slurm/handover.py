"""Directories of a lease that are given to the Unix user of its tenant."""

import pwd
from contextlib import suppress
from pathlib import Path

from fairlead.code_snapshot.unpacking import unpack
from fairlead.engines.keeper.confinement.tenant_user import give_directory
from fairlead.engines.slurm.leases import SlurmLeasePart


def hand_over(part: SlurmLeasePart, user: pwd.struct_passwd) -> None:
    """Give the directories of a part and of its job to the tenant's user."""
    part.directory.parent.chmod(0o711)
    give_directory(part.directory, user.pw_uid, user.pw_gid)
    for name in (part.order.checkpoint_dir, part.order.log_dir):
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):
            path.mkdir(mode=0o700)
        give_directory(path, user.pw_uid, user.pw_gid, left_by_server=("lock", "fence"))
    if part.order.code_snapshot:
        owner = (user.pw_uid, user.pw_gid)
        unpack(Path(part.order.code_snapshot), Path(part.order.directory), owner)
