"""Checkup of this machine for the local engine: its GPUs and the job library."""

import shutil
import subprocess
from collections.abc import Iterator

from fairlead.engines.local.gpus import find_gpus
from fairlead.engines.shared.checkup.findings import Finding
from fairlead.version import __version__


def check_devices(emulate: str | None) -> Iterator[Finding]:
    """Yield the GPUs of this machine, or the emulated devices."""
    counts: dict[str, int] = {}
    for gpu in find_gpus():
        counts[gpu.accelerator] = counts.get(gpu.accelerator, 0) + 1
    gpus = ", ".join(f"{count} {accelerator}" for accelerator, count in counts.items())
    if emulate is not None:
        yield Finding("devices", "ok", f"{emulate} emulated; GPUs here: {gpus or 'none'}")
    elif gpus:
        yield Finding("devices", "ok", gpus)
    elif shutil.which("nvidia-smi") is None:
        fix = "install NVIDIA's driver, or emulate devices: --emulate v100=2,k80=4"
        yield Finding("devices", "warning", "no GPUs: nvidia-smi is missing", fix)
    else:
        fix = "check `nvidia-smi -L`, or emulate devices: --emulate v100=2,k80=4"
        yield Finding("devices", "warning", "nvidia-smi lists no GPUs", fix)


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
