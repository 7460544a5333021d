"""Workloads of jobs that name none: the script and the arguments that may change its speed.

Jobs of a tenant with the same script and the same arguments share their measured speeds. Options
that rarely change the speed of a step, such as a seed, are left out, and so are secrets.
"""

import hashlib
import re
from collections.abc import Iterator, Sequence

MAX_LENGTH = 128
_SCRIPT = re.compile(r".+\.(py|sh|pl|jl|R|r)")
_OPTION = re.compile(r"--?[A-Za-z]\S*")
_WORDS = re.compile(r"[-_.]+|(?<=[a-z])(?=[A-Z])")
_CONTROL = re.compile(r"[\x00-\x20\x7f]+")

_MODEL = frozenset({"model", "arch", "architecture", "dataset", "data", "config", "task"})
"""words of options that choose the work: they always count"""
_IRRELEVANT = frozenset(
    {
        *("seed", "lr", "rate", "decay", "momentum", "dropout", "warmup", "wd", "beta", "eps"),
        *("steps", "epochs", "iterations", "iters"),
        *("name", "run", "project", "tag", "group", "entity", "notes", "id", "wandb"),
        *("out", "output", "outdir", "dir", "directory", "path", "root", "folder"),
        *("log", "logs", "logdir", "save", "checkpoint", "checkpoints", "ckpt", "resume"),
        *("token", "key", "secret", "secrets", "password", "credentials", "auth"),
        *("port", "host", "url", "address", "rank"),
    }
)
"""words of options that do not change the speed of a step, or that must not be shown"""


def workload_of_command(command: Sequence[str], directory: str = "") -> str:
    """Return ``project/train.py --model bert (batch size 32)`` for such a command.

    The directory of a script is part of its name: ``train.py`` is often not the only one.
    """
    program, arguments = _program(command)
    batch_size = ""
    kept = [_script_name(program, directory)]
    for option, value in _options(arguments):
        words = frozenset(_WORDS.split(option.lstrip("-").lower()))
        if "batch" in words or words & {"bs", "batchsize"}:
            if not batch_size and value.isascii() and value.isdecimal() and int(value) >= 1:
                batch_size = f"(batch size {int(value)})"
                continue
        elif words & _IRRELEVANT and not words & _MODEL:
            continue
        kept += [part for part in (option, value.rstrip("/").rpartition("/")[2]) if part]
    return _shortened(_CONTROL.sub(" ", " ".join(kept)).strip(), batch_size)


def _program(command: Sequence[str]) -> tuple[str, Sequence[str]]:
    """Return the script or module that a command runs, otherwise its program, with arguments."""
    for at, word in enumerate(command):
        if _SCRIPT.fullmatch(word):
            return word, command[at + 1 :]
        if word == "-m" and at + 1 < len(command):
            return command[at + 1], command[at + 2 :]
    return command[0].rpartition("/")[2], command[1:]


def _script_name(program: str, directory: str) -> str:
    """Return a script with the directory that holds it; other programs as they are."""
    if not _SCRIPT.fullmatch(program):
        return program
    parts = [part for part in f"{directory}/{program}".split("/") if part not in ("", ".", "..")]
    return "/".join(parts[-2:])


def _options(arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield options with their values; the option of a positional argument is empty."""
    waiting = ""
    for word in arguments:
        is_option = _OPTION.fullmatch(word) is not None
        if waiting and not is_option:
            yield waiting, word
            waiting = ""
            continue
        if waiting:
            yield waiting, ""
            waiting = ""
        option, equals, value = word.partition("=")
        if not is_option:
            yield "", word
        elif equals:
            yield option, value
        else:
            waiting = option
    if waiting:
        yield waiting, ""


def _shortened(name: str, batch_size: str) -> str:
    """Return the name with its batch size; a hash replaces the end of one that is too long."""
    space = MAX_LENGTH - len(batch_size) - bool(batch_size)
    if len(name) > space:
        digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8]
        name = f"{name[: space - 9]} {digest}"
    return f"{name} {batch_size}".strip()
