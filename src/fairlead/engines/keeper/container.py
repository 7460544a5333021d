"""Containers: the command line that runs a member in an image, by the runtime of its node.

The runtime is a child of the keeper like any member: it forwards signals and returns the exit
status of the command. Apptainer and podman keep the processes below the keeper. Docker's daemon
starts them elsewhere, so the keeper also removes the container by its name.
"""

import hashlib
import os
import shutil
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from fairlead.engines.base import LaunchOrder
from fairlead.engines.keeper.launch_failure import LaunchFailedError
from fairlead.job import checkpoint
from fairlead.model.errors import InputError

RUNTIMES = ("apptainer", "podman", "docker")
"""in order of preference: the first two need no daemon"""
_OF_THE_NODE = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LD_LIBRARY_PATH", "PYTHONPATH")
"""variables that the image has its own values of"""


def find_runtime(image: str) -> str | None:
    """Return the path of the first runtime of this machine that can run an image."""
    names = RUNTIMES[:1] if _is_file(image) else RUNTIMES
    return next((path for name in names if (path := shutil.which(name))), None)


def require_runtime(image: str) -> str:
    """Return the runtime for an image; InputError if this machine has none."""
    runtime = find_runtime(image)
    if runtime is None:
        names = RUNTIMES[0] if _is_file(image) else f"{', '.join(RUNTIMES[:-1])} or {RUNTIMES[-1]}"
        problem = f"no {names} in the PATH of {os.uname().nodename}"
        fix = "expected an operator to install it, or a job without a container"
        raise InputError(problem, fix=fix, field="container")
    return runtime


@dataclass(frozen=True, slots=True)
class Container:
    """The image of one lease and the runtime that runs it."""

    order: LaunchOrder
    runtime: str
    directory: Path
    """the lease's directory"""

    @classmethod
    def of(cls, order: LaunchOrder, directory: Path) -> "Container":
        """Return the container of an order; LaunchFailedError if it cannot run on this node."""
        try:
            runtime = require_runtime(order.container)
        except InputError as error:
            raise LaunchFailedError("failed", str(error)) from error
        return cls(order, runtime, directory)

    def command(
        self, index: int, environment: Mapping[str, str], own: Collection[str]
    ) -> list[str]:
        """Return the command line of a member; ``own`` names the variables that are the job's.

        Values of variables are taken from the runtime's environment: other users can read
        command lines.
        """
        mounted = list(dict.fromkeys(self._mounts(environment)))
        for path in mounted:
            if "," in path or ":" in path:
                problem = f"container: {path!r} cannot be mounted: expected no comma or colon"
                raise LaunchFailedError("failed", problem)
        gpus = [gpu for gpu in environment.get("CUDA_VISIBLE_DEVICES", "").split(",") if gpu]
        if self._name == "apptainer":
            options = ["exec", *(["--nv"] if gpus else [])]
            options += [word for path in mounted for word in ("--bind", path)]
            options += ["--pwd", self.order.directory] if self.order.directory else []
        else:
            options = self._daemon_options(index, gpus)
            options += [word for path in mounted for word in ("--volume", f"{path}:{path}")]
            options += ["--workdir", self.order.directory] if self.order.directory else []
            passed = sorted(set(own) - set(_OF_THE_NODE))
            options += [word for name in passed for word in ("--env", name)]
        return [self.runtime, *options, self._image, *self.order.command]

    def removal(self, index: int) -> list[str] | None:
        """Return the command that removes a member's container; None if none is left."""
        if self._name == "apptainer":
            return None
        return [self.runtime, "rm", "--force", self._container_name(index)]

    @property
    def _name(self) -> str:
        return Path(self.runtime).name

    @property
    def _image(self) -> str:
        """The image in the runtime's notation."""
        image = self.order.container
        if self._name != "apptainer":
            return image.removeprefix("docker://")
        return image if "://" in image or _is_file(image) else f"docker://{image}"

    def _mounts(self, environment: Mapping[str, str]) -> Iterable[str]:
        order = self.order
        if order.directory:
            yield order.directory
        yield order.checkpoint_dir
        yield checkpoint.control_directory(order.checkpoint_dir)
        if "FAIRLEAD_NODE_CHECKPOINT_DIR" in environment:
            yield environment["FAIRLEAD_NODE_CHECKPOINT_DIR"]
        status = Path(environment["FAIRLEAD_STATUS_FILE"])
        status.touch()  # a missing file would be mounted as a directory
        yield str(status)

    def _daemon_options(self, index: int, gpus: Collection[str]) -> list[str]:
        """Return the options of podman or docker."""
        name = self._container_name(index)
        options = ["run", "--rm", "--name", name, "--network", "host", "--ipc", "host"]
        options += ["--security-opt", "no-new-privileges", "--cap-drop", "all"]
        if self._name == "podman":
            # The container's processes stay in the lease's control group. Podman then insists on
            # a PID namespace, whose first process ignores signals that it does not handle.
            options += ["--cgroups", "disabled", *(["--init"] if _has_podman_init() else [])]
            options += [word for gpu in gpus for word in ("--device", f"nvidia.com/gpu={gpu}")]
            return options if self._uid == 0 else [*options, "--userns", "keep-id"]
        options += ["--init", "--user", f"{self._uid}:{self._gid}"]
        if gpus:
            options += ["--gpus", f'"device={",".join(gpus)}"']
        if self.order.memory_gib is not None:
            options += ["--memory", str(int(self.order.memory_gib * 2**30))]
        if self.order.max_processes is not None:
            options += ["--pids-limit", str(self.order.max_processes)]
        return options

    @property
    def _uid(self) -> int:
        return Path(self.order.checkpoint_dir).stat().st_uid

    @property
    def _gid(self) -> int:
        return Path(self.order.checkpoint_dir).stat().st_gid

    def _container_name(self, index: int) -> str:
        place = hashlib.sha256(os.fsencode(self.directory)).hexdigest()[:12]
        return f"fairlead-{place}-{self.order.lease}-{self.order.first_rank + index}"


def _has_podman_init() -> bool:
    """Return whether podman can put a process before the command that forwards signals to it."""
    return bool(shutil.which("catatonit")) or Path("/usr/libexec/podman/catatonit").exists()


def _is_file(image: str) -> bool:
    return image.startswith(("/", ".")) or image.endswith(".sif")
