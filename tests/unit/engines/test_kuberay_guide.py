"""The guide's RayCluster is valid for KubeRay and leads to the tested ``ray start`` options."""

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
    """Return the ``ray start`` options that KubeRay derives from a group, without its own."""
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


def test_kuberay_derives_the_tested_start_options() -> None:
    head, worker = map(start_options, groups())
    assert head == {"num-cpus": "0"}
    assert worker == {"num-cpus": "64", "num-gpus": "8", "labels": "rack=r1"}


def test_start_parameters_are_valid_for_kuberay() -> None:
    for group in groups():
        parameters = group["rayStartParams"]
        assert "labels" not in parameters, "KubeRay rejects labels here"
        assert all(isinstance(value, str) for value in parameters.values())
        assert not any("$" in value for value in parameters.values()), "unset variable"


def test_containers_mount_only_volumes_of_their_pod() -> None:
    for group in groups():
        pod = group["template"]["spec"]
        volumes = {volume["name"] for volume in pod["volumes"]}
        for container in pod["containers"]:
            assert {mount["name"] for mount in container["volumeMounts"]} <= volumes


def test_the_server_reaches_ray_and_jobs_reach_the_server() -> None:
    cluster, service = documents()
    pod = cluster["spec"]["headGroupSpec"]["template"]["spec"]
    ray, server = pod["containers"]
    assert pod["shareProcessNamespace"]
    paths = {mount["mountPath"] for mount in server["volumeMounts"]}
    assert {"/tmp/ray", "/dev/shm"} <= paths
    assert ray["volumeMounts"] == server["volumeMounts"]
    options = dict(option.removeprefix("--").split("=", 1) for option in server["command"][2:])
    assert engine_plugin(options["engine"])[1] == {"address": "127.0.0.1:6379"}
    assert options["data"].startswith("/data/")
    # Jobs get the machine's name: in a pod its `hostname`, which is also the service's name.
    assert options["host"] == "0.0.0.0"
    assert pod["hostname"] == service["metadata"]["name"]
    assert service["spec"]["selector"]["ray.io/cluster"] == cluster["metadata"]["name"]
    assert service["spec"]["ports"] == [{"port": ServeSettings(data=Path("/data")).port}]
    assert server["command"][:2] == ["fairlead", "serve"]
