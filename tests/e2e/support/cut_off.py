"""A node that is cut off while the server is killed, and whose jobs go on there: on any engine."""

import json
import time

from tests.e2e.server.test_live import check_result
from tests.e2e.support.cluster_server import ClusterServer, note
from tests.support.namespaces import Apart


class CutOff:
    """A gang over *n2* and a job on it; *n3* has room for both; *n2* is far and is cut off."""

    def __init__(self, server: ClusterServer, far: Apart, gang_steps: int, steps: int) -> None:
        self.server, self.far = server, far
        server.start(round_s=40.0)
        server.client.post("/v1/nodes/n3/cordon")
        often = {"FAIRLEAD_CHECKPOINT_S": "0.5"}
        self.gang = server.submit(
            "gang", gang_steps, workload="small", gang=3, accelerators=["v100", "k80"]
        )
        self.alone = server.submit(
            "alone", steps, workload="uneven", accelerators=["p100", "k80"], environment=often
        )
        self._made = ((self.gang, "gang", gang_steps, 3), (self.alone, "alone", steps, 1))
        server.until(lambda: {self.gang, self.alone} <= set(server.leases()), "both to run")
        self._old = max(server.data.glob(f"jobs/{self.alone}/logs/*.0.log"))
        server.client.post("/v1/nodes/n3/return")

    def cut(self) -> tuple[float, float]:
        """Take network, data directory and server away at once; start the server again.

        Returns after how many seconds it was back, and both jobs ran elsewhere.
        """
        server = self.server
        began = time.monotonic()
        self.far.cut(server.data)
        server.kill()
        server.start(round_s=40.0)
        restarted = time.monotonic() - began
        elsewhere = {self.gang: ["n3"], self.alone: ["n3"]}
        server.until(lambda: server.leases() == elsewhere, "both to run elsewhere")
        taken = time.monotonic() - began
        note(f"run elsewhere after {taken:.1f} s, {restarted:.1f} s of them the server's start")
        return restarted, taken

    def let_it_try_to_save(self) -> None:
        """See that the old job, slow as it is, has gone on, and that what it saves is refused."""
        saved = next(self.server.data.glob(f"jobs/{self.alone}/checkpoint/latest.json"))
        steps = json.loads(saved.read_text())["steps"]
        assert "no checkpoint at step" in self._old.read_text()
        assert "refused" not in self._old.read_text()
        self.far.restore_directories(self.server.data)
        self.server.until(lambda: "refused: lease" in self._old.read_text(), "its checkpoint")
        assert "may write" in self._old.read_text()
        assert steps > 0

    def finish(self) -> None:
        """See both jobs end with exactly their steps, each under one more lease."""
        for job_id, name, steps, ranks in self._made:
            job = self.server.client.wait(job_id, timeout_s=120)
            assert (job["state"], job["steps_done"], job["leases"]) == ("finished", steps, 2)
            assert job["failures"] == 0
            for rank in range(ranks):
                check_result(self.server.root / f"{name}.{rank}", steps)
