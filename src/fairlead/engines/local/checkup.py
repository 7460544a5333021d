"""Checkup of this machine for the local engine: its GPUs, isolation and the job library."""

import os
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from fairlead.engines.keeper.confinement import cgroup
from fairlead.engines.local.gpus.inventory import find_gpus
from fairlead.engines.local.mps import MpsDaemon
from fairlead.engines.shared.checkup.findings import Finding
from fairlead.model.errors import UsageError
from fairlead.version import __version__


def check_devices(emulate: str | None) -> Iterator[Finding]:
    """Yield the GPUs of this machine, or the emulated devices."""
    found, reader = find_gpus()
    counts = Counter(gpu.accelerator for gpu in found)
    gpus = ", ".join(f"{count} {accelerator}" for accelerator, count in counts.items())
    if emulate is not None:
        yield Finding("devices", "ok", f"{emulate} emulated; GPUs here: {gpus or 'none'}")
    elif gpus:
        yield Finding("devices", "ok", gpus)
        if reader is None:
            fix = "pip install 'fairlead[nvml]', so that faulty GPUs are drained"
            yield Finding("devices", "warning", "the condition of GPUs is not monitored", fix)
    elif shutil.which("nvidia-smi") is None:
        fix = "install NVIDIA's driver, or emulate devices: --emulate v100=2,k80=4"
        yield Finding("devices", "warning", "no GPUs: nvidia-smi is missing", fix)
    else:
        fix = "check `nvidia-smi -L`, or emulate devices: --emulate v100=2,k80=4"
        yield Finding("devices", "warning", "nvidia-smi lists no GPUs", fix)


def check_mps(data: Path, *, wanted: bool) -> Iterator[Finding]:
    """Yield whether MPS can be started, if it is wanted."""
    if not wanted:
        return
    try:
        MpsDaemon(data)
    except UsageError as error:
        yield Finding("MPS", "wrong", str(error), "install NVIDIA's MPS, or use --engine local")
    else:
        yield Finding("MPS", "ok", "packed jobs run on a GPU at the same time")


def check_isolation(data: Path, *, users: bool) -> Iterator[Finding]:
    """Yield whether jobs are separated from each other, and limited by the kernel."""
    what = "isolation"
    if not users:
        fix = "for tenants who do not trust each other: --engine local:users"
        yield Finding(what, "ok", "all jobs run as the server's user and trust each other", fix)
    elif os.geteuid() != 0:
        fix = "run the server as root, or use --engine local"
        yield Finding(what, "wrong", "users: jobs of other users need root", fix)
    else:
        yield Finding(what, "ok", "each job runs as the Unix user of its tenant")
        closed = [path for path in data.parents if path.exists() and not path.stat().st_mode & 1]
        if closed:
            fix = f"chmod o+x {closed[0]}, or move the data directory"
            yield Finding(what, "wrong", f"tenants' users cannot enter {closed[0]}", fix)
    controllers = cgroup.controllers()
    if controllers is None:
        fix = "run the server as root on a machine with writable control groups"
        problem = "no control groups: limits are polled, and a daemon may outlive a killed keeper"
        yield Finding(what, "warning" if users else "ok", problem, fix)
    elif missing := {"memory", "pids"} - controllers:
        names = " and ".join(sorted(missing))
        fix = f"enable the controllers {names}"
        yield Finding(what, "warning", f"control groups without {names}: limits are polled", fix)
    else:
        yield Finding(what, "ok", "control groups end leases and limit memory and processes")


def check_job_library(python: str) -> Iterator[Finding]:
    """Yield whether the interpreter of jobs can import ``fairlead.job``."""
    result = subprocess.run(
        [python, "-c", "import fairlead.job, fairlead; print(fairlead.__version__)"],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        cwd="/",
    )
    version = result.stdout.strip()
    if result.returncode:
        error = result.stderr.strip().rpartition("\n")[2]
        fix = f"{python} -m pip install fairlead"
        yield Finding("job library", "wrong", f"{python} cannot import fairlead.job: {error}", fix)
    elif version != __version__:
        problem = f"{python} has Fairlead {version}, the server {__version__}"
        fix = f"{python} -m pip install fairlead=={__version__}"
        yield Finding("job library", "warning", problem, fix)
    else:
        yield Finding("job library", "ok", f"{python} imports fairlead.job")
