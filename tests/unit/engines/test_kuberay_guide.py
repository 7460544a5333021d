"""The guide's RayCluster is one that KubeRay takes, and leads to the Ray that was tried."""

import re
from pathlib import Path
from typing import Any

import yaml

from fairlead.engines.plugin import engine_plugin
from fairlead.server.config.settings import ServeSettings

GUIDE = Path(__file__).parents[3] / "docs/guide/ray.md"


def documents() -> tuple[dict[str, Any], dict[str, Any]]:
    (block,) = re.findall(r"```yaml\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    cluster, service = yaml.safe_load_all(block)
    assert (cluster["kind"], service["kind"]) == ("RayCluster", "Service")
    return cluster, service


def groups() -> list[dict[str, Any]]:
    spec = documents()[0]["spec"]
    return [spec["headGroupSpec"], *spec["workerGroupSpecs"]]


def start_options(group: dict[str, Any]) -> dict[str, str]:
    """Return the options of ``ray start`` to which KubeRay's rules lead, but for its own."""
    container = group["template"]["spec"]["containers"][0]
    limits = container.get("resources", {}).get("limits", {})
    options = dict(group["rayStartParams"])
    if "cpu" in limits:
        options.setdefault("num-cpus", limits["cpu"])
    for name in (name for name in limits if name.endswith("gpu")):
        options.setdefault("num-gpus", limits[name])
    if group.get("labels"):
        options["labels"] = ",".join(f"{key}={value}" for key, value in group["labels"].items())
    return options


def test_it_leads_to_the_options_that_were_tried() -> None:
    head, worker = map(start_options, groups())
    assert head == {"num-cpus": "0"}
    assert worker == {"num-cpus": "64", "num-gpus": "8", "labels": "rack=r1"}


def test_kuberay_takes_what_is_given_to_ray_s_start() -> None:
    for group in groups():
        given = group["rayStartParams"]
        assert "labels" not in given, "KubeRay refuses them there"
        assert all(isinstance(value, str) for value in given.values())
        assert not any("$" in value for value in given.values()), "nobody sets that variable"


def test_every_container_mounts_volumes_that_its_pod_has() -> None:
    for group in groups():
        pod = group["template"]["spec"]
        there = {volume["name"] for volume in pod["volumes"]}
        for container in pod["containers"]:
            assert {mount["name"] for mount in container["volumeMounts"]} <= there


def test_the_server_is_let_into_ray_and_found_by_jobs() -> None:
    cluster, service = documents()
    pod = cluster["spec"]["headGroupSpec"]["template"]["spec"]
    ray, server = pod["containers"]
    assert pod["shareProcessNamespace"]
    paths = {mount["mountPath"] for mount in server["volumeMounts"]}
    assert {"/tmp/ray", "/dev/shm"} <= paths
    assert ray["volumeMounts"] == server["volumeMounts"]
    given = dict(option.removeprefix("--").split("=", 1) for option in server["command"][2:])
    assert engine_plugin(given["engine"])[1] == {"address": "127.0.0.1:6379"}
    assert given["data"].startswith("/data/")
    # Jobs are told the machine's name: in a pod that is its `hostname`, and the service's.
    assert given["host"] == "0.0.0.0"
    assert pod["hostname"] == service["metadata"]["name"]
    assert service["spec"]["selector"]["ray.io/cluster"] == cluster["metadata"]["name"]
    assert service["spec"]["ports"] == [{"port": ServeSettings(data=Path("/data")).port}]
    assert server["command"][:2] == ["fairlead", "serve"]
