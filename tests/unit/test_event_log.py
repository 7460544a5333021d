"""The log that a simulation writes holds all that its replay needs."""

from pathlib import Path
from typing import Any

from fairlead.core import Scheduler
from fairlead.mechanisms.choose import realise
from fairlead.model.cluster import Accelerator, Cluster
from fairlead.model.events import JobSubmitted
from fairlead.model.job import Job
from fairlead.model.speeds import SpeedKey, SpeedTable
from fairlead.sim.event_log import EventLog, replay_file


def test_a_replayed_scheduler_believes_what_the_logged_one_did(tmp_path: Path) -> None:
    beliefs = SpeedTable(
        {
            SpeedKey("a", 1, "v100"): 4.0,
            SpeedKey("a", 2, "v100"): 7.0,
            SpeedKey("a", 2, "v100", "spread"): 5.0,
            SpeedKey("a", 1, "v100", partner="b"): 3.0,
            SpeedKey("b", 1, "v100"): 2.0,
            SpeedKey("b", 1, "v100", partner="a"): 1.5,
        },
        assumed=1.0,
    )
    cluster = Cluster.of({"v100": 2}, details={"v100": Accelerator("v100", memory_gib=16.0)})
    mechanism: Any = realise("max-min:packed", None, None)
    logged: Scheduler[Any] = Scheduler(cluster, beliefs, mechanism)
    path = tmp_path / "log.jsonl"
    with path.open("w") as file:
        log = EventLog(
            file, cluster, beliefs, policy="max-min:packed", mechanism=None, round_s=None
        )
        event = JobSubmitted(0.0, Job(id="j", workload="a", total_steps=10.0))
        log.write(event)
        logged.handle(event)
        log.close(logged)
    found = replay_file(path)
    assert found.same
    assert found.scheduler.beliefs == beliefs
    assert found.scheduler.cluster.memory_gib.tolist() == [16.0]
