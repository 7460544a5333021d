"""Command lines that run members in containers."""

import os
import stat
from itertools import pairwise
from pathlib import Path

import pytest

from fairlead.engines.base import LaunchOrder
from fairlead.engines.keeper.container import RUNTIMES, Container, require_runtime
from fairlead.engines.keeper.launch_failure import LaunchFailedError
from fairlead.model.errors import InputError


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory that is all of the PATH."""
    made = tmp_path / "bin"
    made.mkdir()
    monkeypatch.setenv("PATH", str(made))
    return made


def install(path: Path, *names: str) -> None:
    for name in names:
        (path / name).write_text("#!/bin/sh\n")
        (path / name).chmod(0o755)


def order(root: Path, image: str = "pytorch/pytorch:2.5.1", **settings: object) -> LaunchOrder:
    (root / "checkpoint").mkdir(exist_ok=True)
    values: dict[str, object] = {
        "lease": 7,
        "job": "j1",
        "command": ("python", "train.py"),
        "directory": "/work",
        "container": image,
        "devices": (("n1", 0),),
        "accelerators": ("v100",),
        "checkpoint_dir": str(root / "checkpoint"),
        "log_dir": str(root / "logs"),
    }
    return LaunchOrder(**{**values, **settings})  # type: ignore[arg-type]  # checked by the class


def command(root: Path, gpus: str = "", **settings: object) -> list[str]:
    status = root / "status.0"
    variables = {
        "FAIRLEAD_STATUS_FILE": str(status),
        "PATH": "/bin",
        "LR": "0.1",
        "TOKEN": "secret",
    }
    environment = {**variables, **({"CUDA_VISIBLE_DEVICES": gpus} if gpus else {})}
    container = Container.of(order(root, **settings), root)  # type: ignore[arg-type]  # as above
    words = container.command(0, {**environment, "INHERITED": "1"}, environment)
    assert status.exists()
    assert "secret" not in " ".join(words)
    return words


def pairs(words: list[str], option: str) -> list[str]:
    return [value for name, value in pairwise(words) if name == option]


def test_apptainer_binds_the_directories_and_needs_no_variables(
    path: Path, tmp_path: Path
) -> None:
    install(path, *RUNTIMES)
    words = command(tmp_path, gpus="GPU-1")
    assert words[:3] == [str(path / "apptainer"), "exec", "--nv"]
    assert words[-3:] == ["docker://pytorch/pytorch:2.5.1", "python", "train.py"]
    checkpoint, status = str(tmp_path / "checkpoint"), str(tmp_path / "status.0")
    assert pairs(words, "--bind") == ["/work", checkpoint, status]
    assert pairs(words, "--pwd") == ["/work"]
    assert "--nv" not in command(tmp_path)
    for image in ("/images/a.sif", "oras://registry.example/a:1"):
        assert command(tmp_path, image=image)[-3] == image


def test_podman_and_docker_pass_variables_by_name_and_the_gpus(path: Path, tmp_path: Path) -> None:
    install(path, "docker")
    words = command(tmp_path, gpus="GPU-1,GPU-2", memory_gib=2.0, max_processes=64)
    assert words[:3] == [str(path / "docker"), "run", "--rm"]
    assert pairs(words, "--env") == ["CUDA_VISIBLE_DEVICES", "FAIRLEAD_STATUS_FILE", "LR", "TOKEN"]
    assert pairs(words, "--gpus") == ['"device=GPU-1,GPU-2"']
    assert pairs(words, "--user") == [f"{os.getuid()}:{os.getgid()}"]
    assert (pairs(words, "--memory"), pairs(words, "--pids-limit")) == ([str(2 << 30)], ["64"])
    assert pairs(words, "--workdir") == ["/work"]
    assert f"{tmp_path}/checkpoint:{tmp_path}/checkpoint" in pairs(words, "--volume")
    assert words[-3:] == ["pytorch/pytorch:2.5.1", "python", "train.py"]
    install(path, "podman")
    words = command(tmp_path, gpus="GPU-1", image="docker://pytorch/pytorch:2.5.1")
    assert words[0] == str(path / "podman")
    assert pairs(words, "--device") == ["nvidia.com/gpu=GPU-1"]
    assert pairs(words, "--security-opt") == ["no-new-privileges"]
    assert words[-3] == "pytorch/pytorch:2.5.1"


def test_a_container_is_removed_by_the_name_that_only_its_lease_has(
    path: Path, tmp_path: Path
) -> None:
    install(path, "podman")
    container = Container.of(order(tmp_path), tmp_path / "a")
    environment = {"FAIRLEAD_STATUS_FILE": str(tmp_path / "status.0")}
    (name,) = pairs(container.command(0, environment, ()), "--name")
    assert container.removal(0) == [str(path / "podman"), "rm", "--force", name]
    other = Container.of(order(tmp_path), tmp_path / "b")
    assert other.removal(0) != container.removal(0) != container.removal(1)
    install(path, "apptainer")
    assert Container.of(order(tmp_path), tmp_path).removal(0) is None


def test_a_missing_runtime_and_an_unmountable_path_are_refused(path: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="container: no apptainer, podman or docker in the PATH"):
        require_runtime("pytorch/pytorch")
    install(path, "docker")
    assert stat.S_ISREG(Path(require_runtime("pytorch/pytorch")).stat().st_mode)
    with pytest.raises(InputError, match="container: no apptainer in the PATH of"):
        require_runtime("/images/train.sif")
    with pytest.raises(LaunchFailedError, match="no apptainer in the PATH"):
        Container.of(order(tmp_path, "train.sif"), tmp_path)
    with pytest.raises(LaunchFailedError, match="cannot be mounted: expected no comma or colon"):
        command(tmp_path, directory="/runs/a:b")
