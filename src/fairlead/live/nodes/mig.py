"""MIG layouts by an operator's request: only of GPUs that nothing uses."""

from collections.abc import Sequence

from fairlead.core.queries import Queries
from fairlead.engines.base import Engine, SupportsHandOver, SupportsMig, SupportsParking
from fairlead.live.inputs.inbox import Inbox
from fairlead.live.nodes.lifecycle import NodeController
from fairlead.model import events as ev
from fairlead.model.errors import InputError, ProtocolError
from fairlead.store import Audit, User


class MigLayouts:
    """Divides GPUs of drained nodes; these cannot be returned meanwhile."""

    def __init__(
        self, engine: Engine, nodes: NodeController, queries: Queries, inbox: Inbox
    ) -> None:
        self._engine, self._nodes, self._queries, self._inbox = engine, nodes, queries, inbox

    async def set_layout(
        self, node: str, gpu: int, profiles: Sequence[str], user: User, at: float
    ) -> None:
        """Divide a GPU of a node into MIG devices, or make it whole if there are none.

        Raises ProtocolError if the GPU is in use or the engine cannot do it.
        """
        engine = self._engine
        if not isinstance(engine, SupportsMig):
            raise ProtocolError(
                "this engine divides no GPUs: expected the local engine; on Slurm and Ray divide"
                " them on the drained node, and restart its slurmd or its Ray processes"
            )
        owners = await engine.check_layout(gpu, profiles)
        if node not in owners:
            known = ", ".join(sorted(owners)) or "none"
            fix = f"expected a GPU of it, as nvidia-smi numbers them; its nodes: {known}"
            raise InputError(f"GPU {gpu} has no device of node {node!r}", fix=fix, field="gpu")
        text = ",".join(profiles) or "none"
        audit = Audit(at, user, "mig", f"{node} GPU {gpu}", text)

        def make(_: float) -> Sequence[ev.Event]:
            for owner in owners:
                self._require_unused(owner)
            self._nodes.divided.update(owners)
            return []

        await self._inbox.submit(make, [audit])
        try:
            await engine.set_layout(gpu, profiles)
        finally:
            self._nodes.divided.difference_update(owners)

    def _require_unused(self, node: str) -> None:
        """Raise ProtocolError unless a node is drained, and no process is left on it."""
        if node in self._nodes.divided:
            raise ProtocolError(f"node {node!r}: a GPU is being divided: expected one at a time")
        if node not in self._nodes.drained:
            raise ProtocolError(
                f"node {node!r} is in use: expected a drained one: fairlead nodes drain {node}"
            )
        waiting: list[tuple[str, int]] = []
        if isinstance(self._engine, SupportsParking):
            for devices in self._engine.parked_jobs().values():
                waiting += devices
        if isinstance(self._engine, SupportsHandOver):
            for devices in self._engine.prepared_jobs().values():
                waiting += devices
        if self._queries.has_leases_on(node) or any(at == node for at, _ in waiting):
            raise ProtocolError(
                f"node {node!r}: jobs are still leaving it: expected none: try again in a moment"
            )
