"""The keeper of one node's part of a lease, run by Slurm as its job's script.

It does what a keeper does on one machine. Besides, it shows that it lives by touching ``beat``,
starts no member before the keepers of all parts are there, looks for ``stop`` in its directory,
and ends its members when those of another part have failed: all through the directory that the
nodes share, so it needs neither Slurm's controller nor the scheduler.
``python -m fairlead.engines.slurm.keeper DIRECTORY [HOME]``: with a home, a directory of the
node's own, members save there and what they saved is carried to the data directory.
"""

import os
import signal
import sys
import threading
import time
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from fairlead.engines.base import Ended, LeaseOutcome, Order
from fairlead.engines.keeper import lease_dir
from fairlead.engines.keeper.environment import free_port
from fairlead.engines.keeper.keeper import (
    EXIT_POLL_S,
    Keeper,
    NotStartedError,
    keep,
)
from fairlead.engines.slurm.transfer import CheckpointTransfer, DamagedError
from fairlead.job.checkpoint import FencedError

HEARTBEAT_S = 1.0
_LOOK_S = 0.05
_GANG_TIMEOUT_S = 600.0
_REPORT_RETRY_S = 60.0
"""how long the end of a part may wait for the directory; by then it has long been given up"""
_HOLD_DEVICES_S = 1.0
"""how long it holds its devices, with nobody on them, for who comes next to be in Slurm's queue"""
_BAD = ("failed", "lost", "refused")


class SlurmKeeper(Keeper):
    """Keeps the members of a gang that run on one node."""

    def __init__(self, directory: Path, order: Order) -> None:
        super().__init__(directory, with_allocated_devices(order))
        self._last_heartbeat_at = -HEARTBEAT_S
        self._looked_at = 0.0
        self._grace_s: float | None = None

    def gather(self) -> bool:
        """Wait until the keepers of all parts are there and the place to meet is known."""
        first = self._order.first_rank == 0
        here = {"port": free_port("") if first else 0}
        lease_dir.write_json(self._directory / "here.json", here)
        until = time.monotonic() + _GANG_TIMEOUT_S
        while True:
            self.tick()
            if self._stopping or time.monotonic() > until:
                return False
            found = [lease_dir.read_json(part / "here.json") for part in self._parts()]
            if all(one is not None for one in found):
                break
            time.sleep(_LOOK_S)
        port = next((one["port"] for one in found if one and one["port"]), 0)
        if self._order.meets_at:
            host = self._order.meets_at.rpartition(":")[0]
            self._order = replace(self._order, meets_at=f"{host}:{port}")
        return True

    def tick(self) -> None:
        """Show life, and look whether to stop and how the other parts are.

        While the directory cannot be reached the members go on. Should that last, we are given up
        by those who do not hear of us, and members cannot save: then it is the fence that decides.
        """
        now = time.monotonic()
        if now - self._last_heartbeat_at >= HEARTBEAT_S:
            self._last_heartbeat_at = now
            with suppress(OSError):
                beat(self._directory)
        with suppress(OSError):
            self._heed_stop(now)
        if now - self._looked_at >= HEARTBEAT_S and not self._stopping:
            self._looked_at = now
            with suppress(OSError):
                self._check_other_parts(now)

    def tell(self, ended: Ended) -> None:
        """Write down how the part ended once the directory can be reached, if nobody else has."""
        until = time.monotonic() + _REPORT_RETRY_S
        while True:
            try:
                if lease_dir.read_ended(self._directory) is None:
                    super().tell(ended)
                    self._hold_devices()
                return
            except OSError:
                if time.monotonic() > until:
                    raise
            time.sleep(HEARTBEAT_S)

    def _hold_devices(self) -> None:
        """Hold the devices until what the server starts on them is in Slurm's queue.

        Slurm starts what waits for a job's devices when that job's epilog ends; for what is
        submitted later it looks once a second at best.
        """
        over, until = self._directory.parent / "over", time.monotonic() + _HOLD_DEVICES_S
        while not over.exists() and time.monotonic() < until:
            time.sleep(EXIT_POLL_S)

    def _heed_stop(self, now: float) -> None:
        found = lease_dir.read_json(self._directory / "stop")
        if found is None:
            return
        self._stop("")
        if found["grace_s"] != self._grace_s:
            self._grace_s = float(found["grace_s"])
            self._kill_at = min(self._kill_at, now + self._grace_s)

    def _check_other_parts(self, now: float) -> None:
        others = [lease_dir.read_ended(part) for part in self._parts() if part != self._directory]
        bad = [ended for ended in others if ended is not None and ended.ending in _BAD]
        if bad:
            self._stop(bad[0].message or f"members elsewhere exited with {bad[0].exit_codes}")
        elif any(ended is not None and ended.ending == "left" for ended in others):
            # Left alone, ours would wait for theirs in a collective operation for ever.
            self._stopping = True
            self._kill_at = now + self._order.grace_s

    def _parts(self) -> list[Path]:
        count = int((self._directory.parent / "parts").read_text(encoding="ascii"))
        return [self._directory.parent / str(number) for number in range(count)]


class TransferringKeeper(SlurmKeeper):
    """Keeps members that save on their node's own disk."""

    def __init__(self, directory: Path, order: Order, home: Path) -> None:
        super().__init__(directory, order)
        gang = [lease_dir.read_order(part) for part in self._parts()]
        self._transfer = CheckpointTransfer(order, gang, home)

    def gather(self) -> bool:
        """Wait for the rest of the gang, and for the checkpoint that members start from."""
        if not super().gather():
            return False
        failed: list[OSError | FencedError] = []

        def bring() -> None:
            try:
                self._transfer.bring()
            except (OSError, FencedError) as error:
                failed.append(error)

        bringing = threading.Thread(target=bring, daemon=True)
        bringing.start()
        while bringing.is_alive() and not self._stopping:
            self.tick()
            bringing.join(_LOOK_S)
        for error in failed:
            kinds: dict[type[Exception], LeaseOutcome] = {
                FencedError: "refused",
                DamagedError: "failed",
            }
            raise NotStartedError(kinds.get(type(error), "lost"), str(error)) from error
        return not self._stopping

    def finish(self) -> None:
        """Carry what members saved last, before their end is told."""
        with suppress(OSError):
            (self._directory / "carrying").touch()
        self._transfer.end()
        while self._transfer.is_busy():
            self.tick()
            time.sleep(_LOOK_S)

    def _start(self) -> None:
        own = {**self._order.environment, "FAIRLEAD_NODE_CHECKPOINT_DIR": self._transfer.own}
        self._order = replace(self._order, environment=own)
        super()._start()
        self._transfer.begin()


def beat(directory: Path) -> None:
    """Show that the keeper of this directory lives."""
    path = directory / "beat"
    path.touch()
    os.utime(path)


def with_allocated_devices(order: Order) -> Order:
    """Return the order with the devices that Slurm has given, of the kinds that we asked for."""
    given = [part for part in os.environ.get("SLURM_JOB_GPUS", "").split(",") if part]
    if len(given) != len(order.devices) or not all(part.isdigit() for part in given):
        return order
    node = order.devices[0][0]
    numbers = sorted(int(part) for part in given)
    return replace(order, devices=tuple((node, number) for number in numbers))


def main() -> int:
    """Keep the part of a lease whose directory is given."""
    # Slurm's script ignores the signal so that one that comes early kills nobody; whoever sent it
    # has left a file that says the same.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    directory = Path(sys.argv[1])
    if not directory.exists():
        return 0  # Slurm may be late: where the directory is gone the lease has ended
    if len(sys.argv) > 2:
        return keep(directory, partial(TransferringKeeper, home=Path(sys.argv[2])))
    return keep(directory, SlurmKeeper)


if __name__ == "__main__":
    sys.exit(main())
