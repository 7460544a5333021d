"""The experiment reads the speeds that a server believes from its event log."""

from pathlib import Path

from benchmarks.physical.beliefs import BeliefReader
from benchmarks.physical.record import Belief

from fairlead.core import encode_event
from fairlead.model.events import RoundEnd, SpeedMeasured
from fairlead.store import Store


def test_beliefs_survive_a_saved_state_that_deletes_their_events(tmp_path: Path) -> None:
    store = Store(f"sqlite:///{tmp_path / 'fairlead.db'}")
    token = store.acquire("test")
    assert token is not None
    reader = BeliefReader(tmp_path)
    first, second = (
        SpeedMeasured(103.0 + i, "cnn-64@vision", 1, "h200", 4.0 + i) for i in range(2)
    )
    store.append(token, 1, [encode_event(RoundEnd(101.0)), encode_event(first)])
    reader.poll()
    store.save_state(token, 2, "{}")
    store.append(token, 3, [encode_event(second)])
    reader.poll()
    store.close()
    assert reader.beliefs(100.0) == [
        Belief(at_s=3.0 + i, workload="cnn-64@vision", accelerator="h200", steps_per_s=4.0 + i)
        for i in range(2)
    ]
