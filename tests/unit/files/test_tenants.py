"""Tenants files: weights, quotas and history, in JSON or YAML."""

from pathlib import Path

import pytest

from fairlead.files import read_tenants
from fairlead.model.cluster import Cluster
from fairlead.model.errors import InputError
from fairlead.model.instance import Instance
from fairlead.model.tenants.tenant import Tenant
from fairlead.model.tenants.usage_decay import History

YAML = """
history: {half_life_s: 86400, measure: speed}
tenants:
  - {id: vision, weight: 2, parent: research, guarantee: {v100: 2}, limit: {v100: 4}}
  - {id: research, priority: 1, inner: fifo}
"""
JSON = """
{"history": {"half_life_s": 86400, "measure": "speed"},
 "tenants": [{"id": "vision", "weight": 2, "parent": "research",
              "guarantee": {"v100": 2}, "limit": {"v100": 4}},
             {"id": "research", "priority": 1, "inner": "fifo"}]}
"""


@pytest.mark.parametrize(("name", "body"), [("t.yaml", YAML), ("t.json", JSON)])
def test_json_and_yaml_are_equivalent(tmp_path: Path, name: str, body: str) -> None:
    path = tmp_path / name
    path.write_text(body)
    tenants_file = read_tenants(path)
    assert tenants_file.history == History(86400.0, "speed")
    assert tenants_file.tenants == (
        Tenant("vision", 2.0, "research", guarantee={"v100": 2.0}, limit={"v100": 4.0}),
        Tenant("research", priority=1, inner="fifo"),
    )


BAD = {
    "tenants: [{id: a, guarantee: {v100: -1}}]": "guarantee",
    "tenants: [{id: a, guarantee: {v100: 3}, limit: {v100: 2}}]": "limit",
    "tenants: [{id: a, wieght: 2}]": "wieght",
    "tenants: [{id: a, priority: high}]": "priority",
    "tenants: a": "tenants",
    "history: {half_life_s: 0}\ntenants: []": "half_life_s",
    "history: {half_life_s: 5, measure: money}\ntenants: []": "measure",
    "history: {}\ntenants: []": "half_life_s",
    "": "empty",
    "tenants: []\n1: x": "1",
    "tenants: [{id: a, 5: 2}]": "5",
    "tenants: [": "YAML",
    "- 1": "object",
}


@pytest.mark.parametrize("body", BAD)
def test_bad_input_is_one_error_that_names_the_field(tmp_path: Path, body: str) -> None:
    path = tmp_path / "t.yaml"
    path.write_text(body)
    with pytest.raises(InputError, match=BAD[body]) as caught:
        read_tenants(path)
    assert "t.yaml" in str(caught.value)


@pytest.mark.parametrize(
    ("tenants", "problem"),
    [
        ("[{id: a, parent: b}, {id: b, parent: a}]", "tenants.parent: a cycle"),
        ("[{id: a, guarantee: {v100: 3}}]", "tenants.guarantee: 3 v100 guaranteed in all"),
        ("[{id: a, limit: {h100: 1}}]", "tenants: quota of tenant 'a' for unknown accelerator"),
    ],
)
def test_file_is_named_if_its_tenants_do_not_fit_together_or_the_cluster(
    tmp_path: Path, tenants: str, problem: str
) -> None:
    path = tmp_path / "t.yaml"
    path.write_text(f"tenants: {tenants}")
    read = read_tenants(path)
    with pytest.raises(InputError, match=rf"t\.yaml: {problem}"):
        read.tenants_of(Cluster.of({"v100": 2}))


def test_quotas_are_checked_against_the_cluster() -> None:
    cluster = Cluster.of({"v100": 2})
    with pytest.raises(InputError, match="unknown accelerator"):
        Instance(cluster, tenants=(Tenant("a", limit={"h100": 1.0}),))
    with pytest.raises(InputError, match="guaranteed in all"):
        Instance(
            cluster,
            tenants=(Tenant("a", guarantee={"v100": 2.0}), Tenant("b", guarantee={"v100": 1.0})),
        )
    # A child's guarantee is part of its parent's.
    Instance(
        cluster,
        tenants=(
            Tenant("a", guarantee={"v100": 2.0}),
            Tenant("b", parent="a", guarantee={"v100": 1.0}),
        ),
    )
