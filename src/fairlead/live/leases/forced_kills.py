"""Forced kills, persisted before they are carried out, so that a crash forgets none."""

from fairlead.live.inputs.inbox import Inbox
from fairlead.live.leases.lifecycle import LeaseLauncher
from fairlead.live.leases.registry import LeaseRegistry
from fairlead.store import Put, Remove, Store, User
from fairlead.store.audit import name_of

_KIND = "kill"


class ForcedKills:
    """Performs forced cancellations, which give processes no grace."""

    def __init__(
        self, store: Store, launcher: LeaseLauncher, registry: LeaseRegistry, inbox: Inbox
    ) -> None:
        self._store, self._launcher = store, launcher
        self._registry, self._inbox = registry, inbox

    @staticmethod
    def promise(job_id: str, user: User) -> Put:
        """Return the document to persist before ``carry_out``."""
        return Put(_KIND, job_id, name_of(user))

    def carry_out(self, job_id: str) -> None:
        """Kill the processes of a job's leases."""
        self._launcher.kill(job_id)

    def resume(self) -> None:
        """Carry out the kills that an earlier server promised; forget those that are done."""
        promised = self._store.documents(_KIND).keys()
        running = {lease.job for lease in self._registry.open.values()}
        for job_id in promised & running:
            self.carry_out(job_id)
        done = [Remove(_KIND, job_id) for job_id in promised - running]
        if done:
            self._inbox.post(lambda _: [], done)
