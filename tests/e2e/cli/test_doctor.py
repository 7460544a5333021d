"""The doctor of a Slurm or Ray cluster: a healthy one, and what can be wrong with it."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fairlead.engines.keeper.environment import free_port
from fairlead.private_clusters.ray import RayCluster
from fairlead.private_clusters.ray import missing as ray_missing
from fairlead.private_clusters.slurm import SlurmCluster

pytestmark = pytest.mark.slow


def doctor(
    data: Path, *more: str, engine: str = "slurm", before: tuple[str, ...] = ()
) -> dict[str, dict[str, Any]]:
    """Return what → the gravest finding about it; the exit status says whether all is well."""
    command = [sys.executable, "-m", "fairlead", "doctor", "--json", "--engine", engine]
    own = {"FAIRLEAD_PORT": str(free_port())}  # other tests' doctors listen on the default one
    done = subprocess.run(
        [*before, *command, "--data", str(data), *more],
        env={**own, **os.environ},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout, done.stderr
    told = json.loads(done.stdout)
    assert (done.returncode == 0) == told["well"]
    order = ("ok", "warning", "wrong")
    found: dict[str, dict[str, Any]] = {}
    for one in told["findings"]:
        worst = found.setdefault(one["what"], one)
        if order.index(one["level"]) > order.index(worst["level"]):
            found[one["what"]] = one
        assert one["level"] == "ok" or one["fix"], f"it does not say what to do: {one}"
    return found


def unwell(found: dict[str, dict[str, Any]]) -> list[str]:
    return [f"{one['what']}: {one['found']}" for one in found.values() if one["level"] != "ok"]


def test_a_healthy_cluster_is_well(slurm: SlurmCluster, tmp_path: Path) -> None:
    found = doctor(tmp_path / "data")
    assert not unwell(found)
    assert found["shared directory"]["found"] == "4 of 4 nodes write to it"
    assert "4 v100, 2 p100, 4 k80" in found["devices"]["found"]
    assert "nodes reach" in found["port"]["found"]
    assert list((tmp_path / "data").iterdir()) == [], "it leaves something behind"
    slurm.wait_idle()


@pytest.mark.usefixtures("slurm")
def test_a_directory_of_a_node_s_own_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    for name in ("n1", "n2", "n3"):
        (tmp_path / "own" / name).mkdir(parents=True)
    (tmp_path / "own/n4").touch()
    found = doctor(tmp_path / "data", engine=f"slurm:node-dir={tmp_path}/own/{{node}}")
    assert found["node directory"]["level"] == "wrong"
    assert f"n4 cannot write to {tmp_path}/own/n4" in found["node directory"]["found"]
    assert "node-dir=" in found["node directory"]["fix"]


def changed(slurm: SlurmCluster, to: Path, before: str, after: str) -> str:
    """Return a configuration of the same cluster for clients with one line changed."""
    text = (slurm.root / "slurm.conf").read_text()
    lines = [after if line.startswith(before) else line for line in text.splitlines()]
    assert after in lines
    to.mkdir()
    for name in ("gres.conf", "topology.conf"):
        shutil.copy(slurm.root / name, to / name)
    (to / "slurm.conf").write_text("\n".join(lines) + "\n")
    return str(to / "slurm.conf")


def test_no_munge_is_named(
    slurm: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = f"AuthInfo=socket={tmp_path}/none"
    monkeypatch.setenv("SLURM_CONF", changed(slurm, tmp_path / "conf", "AuthInfo=", lost))
    found = doctor(tmp_path / "data")
    assert found["Slurm"]["level"] == "wrong"
    assert "munge" in found["Slurm"]["found"]
    assert "munged" in found["Slurm"]["fix"]


def test_a_controller_that_is_not_there_is_named(
    slurm: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    conf = changed(slurm, tmp_path / "conf", "SlurmctldPort=", "SlurmctldPort=1")
    monkeypatch.setenv("SLURM_CONF", conf)
    found = doctor(tmp_path / "data")
    assert "controller does not answer" in found["Slurm"]["found"]
    assert "slurmctld" in found["Slurm"]["fix"]


@pytest.mark.usefixtures("slurm")
def test_a_configuration_that_is_not_there_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_CONF", str(tmp_path / "none"))
    found = doctor(tmp_path / "data")
    assert f"SLURM_CONF names {tmp_path}/none" in found["Slurm"]["found"]


def test_slurm_that_is_not_installed_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    found = doctor(tmp_path / "data")
    assert "there is no sbatch" in found["Slurm"]["found"]


@pytest.mark.usefixtures("slurm")
def test_a_partition_without_devices_is_named(tmp_path: Path) -> None:
    found = doctor(tmp_path / "data", engine="slurm:partition=nope")
    assert found["devices"]["level"] == "wrong"
    assert "sinfo" in found["devices"]["fix"]


@pytest.mark.usefixtures("slurm")
def test_an_interpreter_that_nodes_lack_is_named(tmp_path: Path) -> None:
    found = doctor(tmp_path / "data", engine="slurm:python=/opt/none/python")
    assert found["nodes"]["level"] == "wrong"
    assert "/opt/none/python" in found["nodes"]["found"]
    assert "python=PATH" in found["nodes"]["fix"]


def test_a_drained_node_is_named(slurm: SlurmCluster, tmp_path: Path) -> None:
    slurm.run("scontrol", "update", "NodeName=n3", "State=DRAIN", "Reason=fan")
    try:
        found = doctor(tmp_path / "data")
    finally:
        slurm.run("scontrol", "update", "NodeName=n3", "State=RESUME")
    assert found["nodes"]["level"] == "warning"
    assert "n3 is drain" in found["nodes"]["found"]
    assert "fan" in found["nodes"]["found"]


def in_namespace(data: Path, options: str) -> tuple[str, ...]:
    """Return what runs a command where ``data`` is a file system that nodes do not see."""
    data.mkdir()
    mount = f'mount -t tmpfs {options} none {data} && exec "$@"'
    before = ("unshare", "--mount", "sh", "-c", mount, "sh")
    if os.geteuid() or subprocess.run([*before, "true"], check=False).returncode:
        pytest.skip("file systems cannot be mounted here")
    return before


@pytest.mark.usefixtures("slurm")
def test_a_directory_that_nodes_do_not_see_is_named(tmp_path: Path) -> None:
    data = tmp_path / "data"
    found = doctor(data, before=in_namespace(data, "-o mode=700"))
    assert found["nodes"]["level"] == "wrong"
    assert "n1, n2, n3" in found["nodes"]["found"]
    assert str(data) in found["nodes"]["fix"]


@pytest.mark.usefixtures("slurm")
def test_a_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    data = tmp_path / "data"
    found = doctor(data, before=in_namespace(data, "-o ro,mode=700"))
    assert found["data directory"]["level"] == "wrong"
    assert "not writable" in found["data directory"]["found"]


# -- Ray ----------------------------------------------------------------------------------------


def ray_engine(ray: RayCluster) -> str:
    return "ray:" + ",".join(f"{name}={value}" for name, value in ray.options.items())


def test_a_healthy_ray_is_well(ray: RayCluster, tmp_path: Path) -> None:
    found = doctor(tmp_path / "data", engine=ray_engine(ray))
    assert not unwell(found)
    assert found["shared directory"]["found"] == "4 of 4 nodes write to it"
    assert "4 v100, 2 p100, 4 k80" in found["devices"]["found"]


def test_a_directory_that_rays_nodes_do_not_see_is_named(ray: RayCluster, tmp_path: Path) -> None:
    data = tmp_path / "data"
    before = in_namespace(data, "-o mode=700")
    found = doctor(data, engine=ray_engine(ray), before=before)
    assert found["nodes"]["level"] == "wrong"
    assert "n1, n2, n3" in found["nodes"]["found"]
    assert str(data) in found["nodes"]["fix"]


def test_a_ray_that_is_not_there_is_named(tmp_path: Path) -> None:
    if ray_missing():
        pytest.skip(ray_missing())
    found = doctor(tmp_path / "data", engine="ray:address=127.0.0.1:1")
    assert found["Ray"]["level"] == "wrong"
    assert "ray start" in found["Ray"]["fix"]
