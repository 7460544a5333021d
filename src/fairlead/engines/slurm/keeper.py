"""The keeper of one node's part of a lease on Slurm, run as the script of its Slurm job.

It extends the keeper of a single machine: it sends heartbeats by touching a file, starts no
member before the keepers of all parts run, reads stop requests from ``stop``, and stops its
members when another part has failed. All of this uses the directory that the nodes share, so the
keeper needs neither Slurm's controller nor the scheduler.
``python -m fairlead.engines.slurm.keeper DIRECTORY [HOME]``: with HOME, a node-local directory,
members save there and their checkpoints are transferred to the data directory.
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

from fairlead.engines.base import Ended, LaunchOrder
from fairlead.engines.keeper import lease_dir
from fairlead.engines.keeper.keeper import Keeper, run_lease
from fairlead.engines.keeper.launch_failure import LaunchFailedError
from fairlead.engines.keeper.output import EXIT_POLL_S
from fairlead.engines.slurm.leases import HEARTBEAT_FILE
from fairlead.engines.slurm.transfer import CheckpointTransfer, CorruptCheckpointError
from fairlead.job.checkpoint import FencedError
from fairlead.model.lease_outcome import FAILED_OUTCOMES, LeaseOutcome

HEARTBEAT_S = 1.0
_POLL_S = 0.05
_GANG_TIMEOUT_S = 600.0
_REPORT_RETRY_S = 60.0
"""seconds to retry the report of an end while the directory is unreachable"""
_HOLD_DEVICES_S = 1.0
"""seconds to hold the idle devices until the next lease is in Slurm's queue"""


class SlurmKeeper(Keeper):
    """Supervises the members of a gang on one Slurm node."""

    in_cgroup = False  # members stay in the group of their Slurm job

    def __init__(self, directory: Path, order: LaunchOrder) -> None:
        super().__init__(directory, with_allocated_devices(order))
        self._last_heartbeat_at = -HEARTBEAT_S
        self._parts_checked_at = 0.0
        self._grace_s: float | None = None

    def wait_for_gang(self) -> bool:
        """Wait until the keepers of all parts run and the rendezvous port is known."""
        first = self._order.first_rank == 0
        here = {"port": self._ports.hold("") if first else 0}
        lease_dir.write_json(self._directory / "here.json", here)
        until = time.monotonic() + _GANG_TIMEOUT_S
        while True:
            self.tick()
            if self._stopping or time.monotonic() > until:
                return False
            ports = [_port(part) for part in self._parts()]
            if None not in ports:
                break
            time.sleep(_POLL_S)
        port = next((port for port in ports if port), 0)
        if self._order.meets_at:
            host = self._order.meets_at.rpartition(":")[0]
            self._order = replace(self._order, meets_at=f"{host}:{port}")
        return True

    def tick(self) -> None:
        """Send a heartbeat, check for stop requests and for the ends of other parts.

        Members continue while the directory is unreachable. If that lasts, the scheduler declares
        this part lost, and the fence keeps its members from saving.
        """
        now = time.monotonic()
        if now - self._last_heartbeat_at >= HEARTBEAT_S:
            self._last_heartbeat_at = now
            with suppress(OSError):
                heartbeat(self._directory)
        with suppress(OSError):
            self._check_stop_request(now)
        if now - self._parts_checked_at >= HEARTBEAT_S and not self._stopping:
            self._parts_checked_at = now
            with suppress(OSError):
                self._check_other_parts(now)

    def report(self, ended: Ended) -> None:
        """Write the end of the part as soon as the directory is reachable, unless it is there."""
        until = time.monotonic() + _REPORT_RETRY_S
        while True:
            try:
                if lease_dir.read_ended(self._directory, ended.lease) is None:
                    super().report(ended)
                    self._hold_devices()
                return
            except OSError:
                if time.monotonic() > until:
                    raise
            time.sleep(HEARTBEAT_S)

    def _hold_devices(self) -> None:
        """Hold the devices until the next lease on them is in Slurm's queue.

        When a job's epilog ends, Slurm starts the jobs that wait for its devices; jobs submitted
        later wait for the scheduling interval of a second or more.
        """
        released, until = self._directory.parent / "over", time.monotonic() + _HOLD_DEVICES_S
        while not released.exists() and time.monotonic() < until:
            time.sleep(EXIT_POLL_S)

    def _check_stop_request(self, now: float) -> None:
        request = lease_dir.read_stop(self._directory)
        if request is None:
            return
        self._stop("")
        if request.grace_s != self._grace_s:
            self._grace_s = request.grace_s
            self._kill_at = min(self._kill_at, now + self._grace_s)

    def _check_other_parts(self, now: float) -> None:
        others = [part for part in self._parts() if part != self._directory]
        ends = [lease_dir.read_ended(part, self._order.lease) for part in others]
        failed = [end for end in ends if end is not None and end.ending in FAILED_OUTCOMES]
        if failed:
            codes = failed[0].exit_codes
            self._stop(failed[0].message or f"members on another node exited with {codes}")
        elif any(end is not None and end.ending == "left" for end in ends):
            # The members here would wait forever in a collective operation.
            self._stopping = True
            self._kill_at = now + self._order.grace_s

    def _parts(self) -> list[Path]:
        count = int((self._directory.parent / "parts").read_text(encoding="ascii"))
        return [self._directory.parent / str(number) for number in range(count)]


class TransferringKeeper(SlurmKeeper):
    """Supervises members that save to their node's local disk."""

    def __init__(self, directory: Path, order: LaunchOrder, home: Path) -> None:
        super().__init__(directory, order)
        gang = [lease_dir.read_order(part) for part in self._parts()]
        self._transfer = CheckpointTransfer(order, gang, home)

    def wait_for_gang(self) -> bool:
        """Wait for the rest of the gang and for the checkpoint that members start from."""
        if not super().wait_for_gang():
            return False
        errors: list[OSError | FencedError] = []

        def download() -> None:
            try:
                self._transfer.download()
            except (OSError, FencedError) as error:
                errors.append(error)

        downloading = threading.Thread(target=download, daemon=True)
        downloading.start()
        while downloading.is_alive() and not self._stopping:
            self.tick()
            downloading.join(_POLL_S)
        for error in errors:
            outcomes: dict[type[Exception], LeaseOutcome] = {
                FencedError: "refused",
                CorruptCheckpointError: "failed",
            }
            raise LaunchFailedError(outcomes.get(type(error), "lost"), str(error)) from error
        return not self._stopping

    def finish(self) -> None:
        """Transfer the members' last checkpoint before their end is reported."""
        with suppress(OSError):
            (self._directory / "carrying").touch()
        self._transfer.finish()
        while self._transfer.is_busy():
            self.tick()
            time.sleep(_POLL_S)

    def _start(self) -> None:
        local = {"FAIRLEAD_NODE_CHECKPOINT_DIR": self._transfer.local_dir}
        self._order = replace(self._order, environment={**self._order.environment, **local})
        super()._start()
        self._transfer.start()


def heartbeat(directory: Path) -> None:
    """Record a heartbeat of the keeper of this directory."""
    path = directory / HEARTBEAT_FILE
    path.touch()
    os.utime(path)


def _port(part: Path) -> int | None:
    """Return the rendezvous port that a part's keeper offers, 0 for none; None before it runs."""
    port = (lease_dir.read_json(part / "here.json") or {}).get("port")
    return port if isinstance(port, int) and 0 <= port < 1 << 16 else None


def with_allocated_devices(order: LaunchOrder) -> LaunchOrder:
    """Return the order with the devices that Slurm allocated for the requested accelerators."""
    gpus = [gpu for gpu in os.environ.get("SLURM_JOB_GPUS", "").split(",") if gpu]
    if len(gpus) != len(order.devices) or not all(gpu.isdigit() for gpu in gpus):
        return order
    node = order.devices[0][0]
    numbers = sorted(int(gpu) for gpu in gpus)
    return replace(order, devices=tuple((node, number) for number in numbers))


def main() -> int:
    """Run the part of a lease in the given directory."""
    # Slurm's script ignores SIGTERM, so that an early one does not kill it; the stop request is
    # in a file as well.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    directory = Path(sys.argv[1])
    if not directory.exists():
        return 0  # Slurm started the job late: the lease has ended and its directory is removed
    if len(sys.argv) > 2:
        return run_lease(directory, partial(TransferringKeeper, home=Path(sys.argv[2])))
    return run_lease(directory, SlurmKeeper)


if __name__ == "__main__":
    sys.exit(main())
