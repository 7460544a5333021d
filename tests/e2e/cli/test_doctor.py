"""The doctor of a Slurm or Ray cluster: a healthy cluster, and each fault."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.support.ports import free_port

from fairlead.private_clusters.ray import RayCluster
from fairlead.private_clusters.ray import missing as ray_missing
from fairlead.private_clusters.slurm import SlurmCluster

pytestmark = pytest.mark.slow


def doctor(
    data: Path, *more: str, engine: str = "slurm", before: tuple[str, ...] = ()
) -> dict[str, dict[str, Any]]:
    """Return checked item → its worst finding; check that the exit status agrees."""
    command = [sys.executable, "-m", "fairlead", "doctor", "--json", "--engine", engine]
    own = {"FAIRLEAD_PORT": str(free_port())}  # other tests' doctors listen on the default port
    done = subprocess.run(
        [*before, *command, "--data", str(data), *more],
        env={**own, **os.environ},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout, done.stderr
    report = json.loads(done.stdout)
    assert (done.returncode == 0) == report["well"]
    order = ("ok", "warning", "wrong")
    findings: dict[str, dict[str, Any]] = {}
    for finding in report["findings"]:
        worst = findings.setdefault(finding["what"], finding)
        if order.index(finding["level"]) > order.index(worst["level"]):
            findings[finding["what"]] = finding
        assert finding["level"] == "ok" or finding["fix"], f"no fix: {finding}"
    return findings


def unwell(findings: dict[str, dict[str, Any]]) -> list[str]:
    return [
        f"{finding['what']}: {finding['found']}"
        for finding in findings.values()
        if finding["level"] != "ok"
    ]


def test_a_healthy_slurm_passes(slurm: SlurmCluster, tmp_path: Path) -> None:
    findings = doctor(tmp_path / "data")
    assert not unwell(findings)
    assert findings["shared directory"]["found"] == "4 of 4 nodes write to it"
    assert "4 v100, 2 p100, 4 k80" in findings["devices"]["found"]
    assert "nodes reach" in findings["port"]["found"]
    assert list((tmp_path / "data").iterdir()) == [], "it leaves something behind"
    slurm.wait_idle()


@pytest.mark.usefixtures("slurm")
def test_a_node_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    for name in ("n1", "n2", "n3"):
        (tmp_path / "own" / name).mkdir(parents=True)
    (tmp_path / "own/n4").touch()
    findings = doctor(tmp_path / "data", engine=f"slurm:node-dir={tmp_path}/own/{{node}}")
    assert findings["node directory"]["level"] == "wrong"
    assert f"n4 cannot write to {tmp_path}/own/n4" in findings["node directory"]["found"]
    assert "node-dir=" in findings["node directory"]["fix"]


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


def test_a_missing_munge_is_named(
    slurm: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = f"AuthInfo=socket={tmp_path}/none"
    monkeypatch.setenv("SLURM_CONF", changed(slurm, tmp_path / "conf", "AuthInfo=", lost))
    findings = doctor(tmp_path / "data")
    assert findings["Slurm"]["level"] == "wrong"
    assert "munge" in findings["Slurm"]["found"]
    assert "munged" in findings["Slurm"]["fix"]


def test_a_missing_controller_is_named(
    slurm: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    conf = changed(slurm, tmp_path / "conf", "SlurmctldPort=", "SlurmctldPort=1")
    monkeypatch.setenv("SLURM_CONF", conf)
    findings = doctor(tmp_path / "data")
    assert "controller does not answer" in findings["Slurm"]["found"]
    assert "slurmctld" in findings["Slurm"]["fix"]


@pytest.mark.usefixtures("slurm")
def test_a_missing_configuration_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_CONF", str(tmp_path / "none"))
    findings = doctor(tmp_path / "data")
    assert f"SLURM_CONF names {tmp_path}/none" in findings["Slurm"]["found"]


def test_a_missing_slurm_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    findings = doctor(tmp_path / "data")
    assert "not installed: sbatch" in findings["Slurm"]["found"]


@pytest.mark.usefixtures("slurm")
def test_a_partition_without_devices_is_named(tmp_path: Path) -> None:
    findings = doctor(tmp_path / "data", engine="slurm:partition=nope")
    assert findings["devices"]["level"] == "wrong"
    assert "sinfo" in findings["devices"]["fix"]


@pytest.mark.usefixtures("slurm")
def test_an_interpreter_that_nodes_lack_is_named(tmp_path: Path) -> None:
    findings = doctor(tmp_path / "data", engine="slurm:python=/opt/none/python")
    assert findings["nodes"]["level"] == "wrong"
    assert "/opt/none/python" in findings["nodes"]["found"]
    assert "python=PATH" in findings["nodes"]["fix"]


def test_a_drained_node_is_named(slurm: SlurmCluster, tmp_path: Path) -> None:
    slurm.run("scontrol", "update", "NodeName=n3", "State=DRAIN", "Reason=fan")
    try:
        findings = doctor(tmp_path / "data")
    finally:
        slurm.run("scontrol", "update", "NodeName=n3", "State=RESUME")
    assert findings["nodes"]["level"] == "warning"
    assert "n3 is drain" in findings["nodes"]["found"]
    assert "fan" in findings["nodes"]["found"]


def in_namespace(data: Path, options: str) -> tuple[str, ...]:
    """Return a command prefix with ``data`` as a file system that nodes do not see."""
    data.mkdir()
    mount = f'mount -t tmpfs {options} none {data} && exec "$@"'
    before = ("unshare", "--mount", "sh", "-c", mount, "sh")
    if os.geteuid() or subprocess.run([*before, "true"], check=False).returncode:
        pytest.skip("file systems cannot be mounted here")
    return before


@pytest.mark.usefixtures("slurm")
def test_a_directory_that_nodes_do_not_see_is_named(tmp_path: Path) -> None:
    data = tmp_path / "data"
    findings = doctor(data, before=in_namespace(data, "-o mode=700"))
    assert findings["nodes"]["level"] == "wrong"
    assert "n1, n2, n3" in findings["nodes"]["found"]
    assert str(data) in findings["nodes"]["fix"]


@pytest.mark.usefixtures("slurm")
def test_a_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    data = tmp_path / "data"
    findings = doctor(data, before=in_namespace(data, "-o ro,mode=700"))
    assert findings["data directory"]["level"] == "wrong"
    assert "not writable" in findings["data directory"]["found"]
    assert f"the file system at {data} is read-only" in findings["data directory"]["found"]
    assert f"remount,rw {data}" in findings["data directory"]["fix"]
    assert "chown" not in findings["data directory"]["fix"]


# -- Ray ----------------------------------------------------------------------------------------


def ray_engine(ray: RayCluster) -> str:
    return "ray:" + ",".join(f"{name}={value}" for name, value in ray.options.items())


def test_a_healthy_ray_passes(ray: RayCluster, tmp_path: Path) -> None:
    findings = doctor(tmp_path / "data", engine=ray_engine(ray))
    assert not unwell(findings)
    assert findings["shared directory"]["found"] == "4 of 4 nodes write to it"
    assert "4 v100, 2 p100, 4 k80" in findings["devices"]["found"]


def test_a_directory_that_rays_nodes_do_not_see_is_named(ray: RayCluster, tmp_path: Path) -> None:
    data = tmp_path / "data"
    before = in_namespace(data, "-o mode=700")
    findings = doctor(data, engine=ray_engine(ray), before=before)
    assert findings["nodes"]["level"] == "wrong"
    assert "n1, n2, n3" in findings["nodes"]["found"]
    assert str(data) in findings["nodes"]["fix"]


def test_an_unreachable_ray_is_named(tmp_path: Path) -> None:
    if ray_missing():
        pytest.skip(ray_missing())
    findings = doctor(tmp_path / "data", engine="ray:address=127.0.0.1:1")
    assert findings["Ray"]["level"] == "wrong"
    assert "ray start" in findings["Ray"]["fix"]
