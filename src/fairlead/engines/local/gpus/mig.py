"""MIG layouts of this machine's GPUs, set by ``nvidia-smi``."""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence

from fairlead.engines.local.gpus.gpu import Gpu
from fairlead.engines.local.gpus.nvidia_smi import list_gpus, parse_list
from fairlead.model.errors import InputError, ProtocolError

_TIMEOUT_S = 120.0
_MAX_DEVICES = 7
"""maximum number of MIG devices of a GPU"""
_PROFILE = re.compile(r"\d{1,2}g\.\d{1,4}gb(\+[a-z.]{1,8})?")
_GPU = re.compile(r"^GPU (\d+): ", re.MULTILINE)


def require_profiles(profiles: Sequence[str]) -> None:
    """Raise InputError unless these can be the MIG devices of one GPU; none: the whole GPU."""
    fix = "expected profiles such as 3g.71gb,2g.35gb (nvidia-smi mig -lgip lists them), or none"
    for profile in profiles:
        if not _PROFILE.fullmatch(profile):
            raise InputError(f"no MIG profile: {profile!r}", fix=fix, field="profiles")
    if len(profiles) > _MAX_DEVICES:
        fix = f"expected at most {_MAX_DEVICES}"
        raise InputError(f"{len(profiles)} MIG devices", fix=fix, field="profiles")


def list_by_index() -> Mapping[int, tuple[Gpu, ...]]:
    """Return the index of each GPU in ``nvidia-smi`` → the GPU, or its MIG devices."""
    text = _run("-L")
    starts = [*_GPU.finditer(text)]
    ends = [*(one.start() for one in starts[1:]), len(text)]
    return {
        int(one[1]): parse_list(text[one.start() : end])
        for one, end in zip(starts, ends, strict=True)
    }


def set_layout(index: int, profiles: Sequence[str]) -> None:
    """Divide a GPU into MIG devices, or make it whole if there are none.

    Raises ProtocolError if ``nvidia-smi`` refuses; then the GPU is whole, if possible.
    """
    gpu = ("-i", str(index))
    if not profiles:
        _remove_devices(index)
        _run(*gpu, "-mig", "0")
        return
    _run(*gpu, "-mig", "1")
    _remove_devices(index)
    try:
        _run("mig", *gpu, "-cgi", ",".join(profiles), "-C")
    except ProtocolError:
        _remove_devices(index)
        _run(*gpu, "-mig", "0", check=False)
        raise


def require_root() -> None:
    """Raise ProtocolError unless this process may divide GPUs."""
    if os.geteuid() != 0:
        raise ProtocolError("MIG layouts need root: expected a server that runs as root")
    if not list_gpus():
        raise ProtocolError("nvidia-smi lists no GPUs: expected one, see `nvidia-smi -L`")


def _remove_devices(index: int) -> None:
    """Remove the MIG devices of a GPU; fails if there are none."""
    _run("mig", "-i", str(index), "-dci", check=False)
    _run("mig", "-i", str(index), "-dgi", check=False)


def _run(*arguments: str, check: bool = True) -> str:
    """Run ``nvidia-smi``; return its output."""
    line = f"nvidia-smi {' '.join(arguments)}"
    tool = shutil.which("nvidia-smi")
    if tool is None:
        raise ProtocolError("there is no nvidia-smi: expected NVIDIA's driver")
    try:
        done = subprocess.run(
            [tool, *arguments], capture_output=True, text=True, check=False, timeout=_TIMEOUT_S
        )
    except subprocess.TimeoutExpired:
        raise ProtocolError(f"{line}: no answer in {_TIMEOUT_S:g} s") from None
    if check and done.returncode:
        problem = (done.stdout + done.stderr).strip().replace("\n", " ") or done.returncode
        raise ProtocolError(f"{line}: {problem}: expected an idle GPU and profiles that fit it")
    return done.stdout
