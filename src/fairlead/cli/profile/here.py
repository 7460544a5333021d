"""Profiles on the devices of this machine, without a server."""

import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from fairlead.job.profile import FILE_VARIABLE, VARIABLE, Speed
from fairlead.model.errors import InputError

CPU = "cpu"
"""accelerator of a machine without GPUs"""
_TAIL = 300


def devices_here(wanted: Sequence[str]) -> dict[str, str]:
    """Return accelerator → one device for CUDA_VISIBLE_DEVICES, of this machine.

    A machine without GPUs has one accelerator, ``cpu``. Raises InputError for an unknown one.
    """
    from fairlead.engines.local.gpus.inventory import find_gpus

    present = {gpu.accelerator: gpu.uuid for gpu in reversed(find_gpus()[0])} or {CPU: ""}
    for name in wanted:
        if name not in present:
            raise InputError(
                f"this machine has no {name!r}",
                fix=f"expected some of {', '.join(present)}",
                field="--accelerators",
            )
    return {name: present[name] for name in (wanted or present)}


def run_here(
    command: Sequence[str],
    directory: Path,
    devices: dict[str, str],
    *,
    steps: tuple[int, int],
    timeout_s: float,
    seen: Callable[[str], None],
) -> dict[str, Speed]:
    """Run the command on one device after the other; return the speed on each."""
    speeds = {}
    for accelerator, device in devices.items():
        seen(accelerator)
        speeds[accelerator] = _measure(command, directory, accelerator, device, steps, timeout_s)
    return speeds


def _measure(
    command: Sequence[str],
    directory: Path,
    accelerator: str,
    device: str,
    steps: tuple[int, int],
    timeout_s: float,
) -> Speed:
    with tempfile.TemporaryDirectory(prefix="fairlead-profile-") as scratch:
        result, output = Path(scratch, "speed.json"), Path(scratch, "output")
        environment = {k: v for k, v in os.environ.items() if not k.startswith("FAIRLEAD_")}
        environment |= {VARIABLE: f"{steps[0]}:{steps[1]}", FILE_VARIABLE: str(result)}
        if device:
            environment["CUDA_VISIBLE_DEVICES"] = device
        with output.open("wb") as file:
            try:
                ended = subprocess.run(
                    command,
                    cwd=directory,
                    env=environment,
                    stdout=file,
                    stderr=file,
                    timeout=timeout_s,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                raise InputError(
                    f"the command had not made its steps after {timeout_s:g} s",
                    fix="expected fewer --steps or a longer --timeout",
                    field=accelerator,
                ) from None
            except OSError as error:
                raise InputError(
                    f"{command[0]}: {error.strerror}", fix="check the command", field=accelerator
                ) from None
        if ended.returncode == 0 and result.exists():
            return Speed(**json.loads(result.read_text(encoding="ascii")))
        raise _failure(accelerator, ended.returncode, output)


def _failure(accelerator: str, status: int, output: Path) -> InputError:
    if status == 0:
        return InputError(
            "the command ended before all steps were measured",
            fix="expected a program that makes its steps with fairlead.job (run.steps), and"
            " enough of them: see --steps",
            field=accelerator,
        )
    tail = output.read_bytes()[-_TAIL:].decode(errors="replace").strip()
    last = tail.splitlines()[-1] if tail else "no output"
    return InputError(
        f"the command exited with {status} ({last})",
        fix="expected one that runs without fairlead profile",
        field=accelerator,
    )
