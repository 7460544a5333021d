"""Files of node events."""

from pathlib import Path

import pytest

from fairlead.files import read_node_events
from fairlead.model.cluster import Cluster
from fairlead.model.errors import InputError
from fairlead.model.events import DevicesTaken, NodeCordoned, NodeLost, NodeReturned

CLUSTER = Cluster.of({"v100": 4, "k80": 2}, per_node=2)


def written(path: Path, *rows: str) -> Path:
    path.write_text("\n".join(rows) + "\n")
    return path


def test_every_event_is_read_and_sorted_by_time(tmp_path: Path) -> None:
    file = written(
        tmp_path / "nodes.csv",
        "at_s,node,event,devices",
        "50,k80-0,opened,",
        "10,v100-0,lost,",
        "20,v100-0,returned,",
        "30,v100-1,taken,1 0",
        "40,k80-0,cordoned,",
        "60,v100-1,taken,",
    )
    assert read_node_events(file, CLUSTER) == (
        NodeLost(10.0, "v100-0"),
        NodeReturned(20.0, "v100-0"),
        DevicesTaken(30.0, "v100-1", (0, 1)),
        NodeCordoned(40.0, "k80-0"),
        NodeCordoned(50.0, "k80-0", cordoned=False),
        DevicesTaken(60.0, "v100-1", ()),
    )


@pytest.mark.parametrize(
    ("row", "field", "message"),
    [
        ("1,v100-1,taken,2", "devices", "from 0 to 1"),
        ("1,v100-1,taken,0 1 0", "devices", "repeated: '0 1 0': expected each device once"),
        ("1,v100-1,taken,one", "devices", "not a number"),
        ("1,v100-1,lost,0", "devices", "concerns the whole node"),
        ("1,v100-1,gone,", "event", "unknown event"),
        ("1,v100-7,lost,", "node", "v100-7"),
        ("-1,v100-1,lost,", "at_s", "negative"),
    ],
)
def test_an_impossible_event_is_refused_with_line_and_field(
    tmp_path: Path, row: str, field: str, message: str
) -> None:
    file = written(tmp_path / "nodes.csv", "at_s,node,event,devices", row)
    with pytest.raises(InputError, match=message) as refused:
        read_node_events(file, CLUSTER)
    assert refused.value.field == field
    assert refused.value.line == 2
