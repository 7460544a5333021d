"""A node that is cut off while the server is killed, and whose jobs keep running: any engine."""

import json
import time

from tests.e2e.support.cluster_server import ClusterServer, note
from tests.e2e.support.trained_line import check_result
from tests.support.namespaces import IsolatedNode

ROUND_S = 180.0
"""leases must outlast the server's restart on a busy machine, or the cut-off jobs would leave"""


class CutOff:
    """A gang partly on *n2* and a job on *n2*, which is cut off; *n3* has space for both."""

    def __init__(
        self, server: ClusterServer, far: IsolatedNode, gang_steps: int, steps: int
    ) -> None:
        self.server, self.far = server, far
        server.start(round_s=ROUND_S)
        server.client.post("/v1/nodes/n3/cordon")
        often = {"FAIRLEAD_CHECKPOINT_S": "0.5"}
        self.gang = server.submit(
            "gang", gang_steps, workload="small", gang=3, accelerators=["v100", "k80"]
        )
        # On n2 it would take minutes: it must not end there before the server is back.
        self.alone = server.submit(
            "alone", steps, workload="steep", accelerators=["p100", "k80"], environment=often
        )
        self._made = ((self.gang, "gang", gang_steps, 3), (self.alone, "alone", steps, 1))
        server.until(lambda: {self.gang, self.alone} <= set(server.leases()), "both to run")
        self._old = max(server.data.glob(f"jobs/{self.alone}/logs/*.0.log"))
        saved = server.data / f"jobs/{self.alone}/checkpoint/latest.json"
        server.until(saved.exists, "a checkpoint to resume from")
        server.client.post("/v1/nodes/n3/return")

    def cut(self) -> tuple[float, float]:
        """Cut network and data directory and kill the server at once; restart the server.

        Return the seconds until the server was back, and until both jobs ran elsewhere.
        """
        server = self.server
        began = time.monotonic()
        self.far.cut(server.data)
        server.kill()
        server.start(round_s=ROUND_S)
        restarted = time.monotonic() - began
        elsewhere = {self.gang: ["n3"], self.alone: ["n3"]}
        server.until(lambda: server.leases() == elsewhere, "both to run elsewhere")
        taken = time.monotonic() - began
        note(f"run elsewhere after {taken:.1f} s, {restarted:.1f} s of them the server's start")
        return restarted, taken

    def let_it_try_to_save(self) -> None:
        """Check that the old job is still running, and that its next checkpoint is refused."""
        saved = next(self.server.data.glob(f"jobs/{self.alone}/checkpoint/latest.json"))
        steps = json.loads(saved.read_text())["steps"]
        assert "no checkpoint at step" in self._old.read_text()
        assert "refused" not in self._old.read_text()
        self.far.restore_directories(self.server.data)
        self.server.until(lambda: "refused: lease" in self._old.read_text(), "its checkpoint")
        assert "may write" in self._old.read_text()
        assert steps > 0

    def finish(self) -> None:
        """Check that both jobs finish with exactly their steps, each under a later lease."""
        for job_id, name, steps, ranks in self._made:
            job = self.server.client.wait(job_id, timeout_s=240)
            assert (job["state"], job["steps_done"], job["failures"]) == ("finished", steps, 0)
            assert job["leases"] >= 2
            for rank in range(ranks):
                check_result(self.server.root / f"{name}.{rank}", steps)
