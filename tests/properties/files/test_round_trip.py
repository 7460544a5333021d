"""Every format reads back the value that it wrote."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.files import (
    format_cluster,
    format_instance,
    format_speeds,
    format_trace,
    read_cluster,
    read_instance,
    read_speeds,
    read_trace,
)
from fairlead.model.cluster import Cluster, Node
from fairlead.model.instance import Instance, InstanceJob, Pair
from fairlead.model.job import Job
from fairlead.model.speeds.table import Consolidation, SpeedKey, SpeedTable
from fairlead.model.tenants.tenant import Tenant

T = TypeVar("T")
NAMES = st.text(st.characters(codec="utf-8", categories=["L", "N", "P", "S", "Zs"]), max_size=12)
LABELS = NAMES.map(str.strip).filter(lambda text: bool(text) and text.isprintable())
ACCELERATORS = st.sampled_from(["v100", "k80", "h200-3g.71gb", "A_b", "1080", "yes", "null", "~"])
POSITIVE = st.floats(1e-3, 1e6)
"""within the bounds of every number (fairlead.model.submission.bounds)"""
SIZES = st.just(0.0) | POSITIVE


def back(read: Callable[[Path], T], body: str, name: str) -> T:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_text(body, encoding="utf-8")
        return read(path)


@st.composite
def jobs(draw: st.DrawFn) -> list[Job]:
    result = []
    for label in draw(st.lists(LABELS, max_size=4, unique=True)):
        gang = draw(st.integers(1, 64))
        names = draw(st.none() | st.lists(ACCELERATORS, min_size=1, unique=True).map(tuple))
        several = draw(st.booleans()) and names is not None
        gangs = {name: draw(st.integers(1, 64)) for name in (names or ())[1:] if several}
        result.append(
            Job(
                id=label,
                workload=draw(LABELS),
                total_steps=draw(POSITIVE),
                gang=gang,
                arrival_at=draw(SIZES),
                tenant=draw(LABELS),
                weight=draw(POSITIVE),
                priority=draw(st.integers(-9, 9)),
                deadline_s=draw(st.none() | POSITIVE),
                min_gang=None if gangs else draw(st.none() | st.integers(1, gang)),
                accelerators=names,
                gangs=gangs,
                utilization=draw(st.none() | st.floats(0, 1, allow_subnormal=False)),
            )
        )
    return result


@settings(deadline=None)
@given(jobs().filter(bool))
def test_traces(listed: list[Job]) -> None:
    ordered = tuple(sorted(listed, key=lambda job: job.arrival_at))
    assert back(read_trace, format_trace(listed), "t.csv").jobs == ordered
    assert back(read_trace, format_trace(listed, "jsonl"), "t.jsonl").jobs == ordered


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    ids = draw(
        st.lists(
            LABELS | st.sampled_from(["n-0", "n-1", "n-2"]), min_size=1, max_size=6, unique=True
        )
    )
    held = st.lists(ACCELERATORS, max_size=4).map(tuple)
    nodes = [Node(label, draw(held), draw(st.just("") | LABELS)) for label in ids]
    return Cluster((*nodes, Node("last", ("v100",))))


@settings(deadline=None)
@given(clusters().filter(lambda cluster: len({n.id for n in cluster.nodes}) == len(cluster.nodes)))
def test_clusters(cluster: Cluster) -> None:
    result = back(read_cluster, format_cluster(cluster), "c.yaml")
    assert result.nodes == cluster.nodes
    assert back(read_cluster, format_cluster(result), "c.yaml") == result


@st.composite
def tables(draw: st.DrawFn) -> SpeedTable:
    result: dict[SpeedKey, float] = {SpeedKey("w", 9, "v100"): 1.0}
    workloads = st.sampled_from(["w", "x, y", 'q"'])
    for _ in range(draw(st.integers(0, 8))):
        placement = draw(st.sampled_from(["consolidated", "spread"]))
        key = SpeedKey(
            draw(workloads),
            draw(st.integers(1, 8)),
            draw(ACCELERATORS),
            cast_placement(placement),
            draw(st.none() | workloads),
        )
        result[key] = draw(SIZES)
        if key.partner is not None:
            mirror = key._replace(workload=key.partner, partner=key.workload)
            result.setdefault(mirror, draw(SIZES))
    return SpeedTable(result)


def cast_placement(text: str) -> Consolidation:
    return "spread" if text == "spread" else "consolidated"


@settings(deadline=None)
@given(tables())
def test_speeds(table: SpeedTable) -> None:
    result = back(read_speeds, format_speeds(table), "s.csv")
    assert dict(result.steps_per_s) == dict(table.steps_per_s)


@st.composite
def instances(draw: st.DrawFn) -> Instance:
    ids = draw(st.lists(LABELS, max_size=4, unique=True))
    listed = tuple(
        InstanceJob(
            id=label,
            speeds={"v100": draw(POSITIVE), draw(ACCELERATORS): draw(POSITIVE)},
            workload=draw(st.just("") | LABELS),
            tenant=draw(LABELS),
            gang=draw(st.integers(1, 2)),
            gangs=draw(st.just({}) | st.just({"v100": 1})),
            weight=draw(POSITIVE),
            steps_left=draw(st.none() | POSITIVE),
            elapsed_s=draw(SIZES),
            deadline_s=draw(st.none() | POSITIVE),
        )
        for label in ids
    )
    alike = len(ids) > 1 and listed[0].gang_on("v100") == listed[1].gang_on("v100")
    pairs = (Pair((ids[0], ids[1]), {"v100": (draw(SIZES), draw(SIZES))}),) if alike else ()
    tenants = (Tenant("top", draw(POSITIVE)), Tenant("low", 1.0, "top", "fifo"))
    return Instance(Cluster.of({"v100": 2, "k80": 2}), listed, tenants, pairs)


@settings(deadline=None)
@given(instances())
def test_instances(instance: Instance) -> None:
    result = back(read_instance, format_instance(instance), "i.json")
    assert (result.jobs, result.tenants, result.pairs) == (
        instance.jobs,
        instance.tenants,
        instance.pairs,
    )
    assert result.cluster.count_by_name() == instance.cluster.count_by_name()
