"""Checks of this machine for the local engine: its GPUs and the job library."""

import shutil
import subprocess
from collections.abc import Iterator

from fairlead import __version__
from fairlead.engines.local.gpus import find_gpus
from fairlead.engines.shared.checkup.findings import Finding


def check_devices(emulate: str | None) -> Iterator[Finding]:
    """Yield the GPUs of this machine, or the devices emulated."""
    gpus = find_gpus()
    counts: dict[str, int] = {}
    for gpu in gpus:
        counts[gpu.accelerator] = counts.get(gpu.accelerator, 0) + 1
    seen = ", ".join(f"{count} {kind}" for kind, count in counts.items())
    if emulate is not None:
        yield Finding("devices", "ok", f"{emulate} emulated; GPUs here: {seen or 'none'}")
    elif gpus:
        yield Finding("devices", "ok", seen)
    elif shutil.which("nvidia-smi") is None:
        fix = "install NVIDIA's driver, or emulate devices: --emulate v100=2,k80=4"
        yield Finding("devices", "warning", "no GPUs: there is no nvidia-smi", fix)
    else:
        fix = "see what `nvidia-smi -L` says, or emulate devices: --emulate v100=2,k80=4"
        yield Finding("devices", "warning", "nvidia-smi lists no GPUs", fix)


def check_job_library(python: str) -> Iterator[Finding]:
    """Yield whether the interpreter of jobs can import ``fairlead.job``."""
    said = subprocess.run(
        [python, "-c", "import fairlead.job, fairlead; print(fairlead.__version__)"],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        cwd="/",
    )
    version = said.stdout.strip()
    if said.returncode:
        last = said.stderr.strip().rpartition("\n")[2]
        fix = f"{python} -m pip install fairlead"
        yield Finding("job library", "wrong", f"{python} cannot import fairlead.job: {last}", fix)
    elif version != __version__:
        said_ = f"{python} has Fairlead {version}, this is {__version__}"
        fix = f"{python} -m pip install fairlead=={__version__}"
        yield Finding("job library", "warning", said_, fix)
    else:
        yield Finding("job library", "ok", f"{python} imports fairlead.job")
