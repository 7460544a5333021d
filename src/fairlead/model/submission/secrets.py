"""Secrets of jobs: the names by which a job asks for values that only the server has."""

import re
from collections.abc import Mapping, Sequence

from fairlead.model.errors import InputError

MAX_NAME = 64
MAX_PER_JOB = 32
_NAME = re.compile(rf"[A-Za-z_][A-Za-z0-9_]{{0,{MAX_NAME - 1}}}")
_FIX = "expected NAME or NAME=VARIABLE, such as HF_TOKEN or HF_TOKEN=HUGGING_FACE_HUB_TOKEN"


def check_secret_name(name: str, field: str = "name") -> None:
    """Raise InputError unless a name can be the name of an environment variable."""
    if not _NAME.fullmatch(name):
        raise InputError(
            f"not the name of an environment variable: {name[: MAX_NAME + 1]!r}",
            fix=f"expected letters, digits and underscores, at most {MAX_NAME}, no digit first",
            field=field,
        )


def parse_secrets(listed: Sequence[str]) -> Mapping[str, str]:
    """Return environment variable → secret, each given as ``NAME`` or ``NAME=VARIABLE``."""
    secrets: dict[str, str] = {}
    for text in listed:
        name, equals, variable = text.partition("=")
        variable = variable if equals else name
        for part in (name, variable):
            if not _NAME.fullmatch(part):
                raise _error(f"not a name: {part[: MAX_NAME + 1]!r}", _FIX)
        if variable.startswith("FAIRLEAD_"):
            raise _error(f"{variable!r} is reserved", "expected a variable without FAIRLEAD_")
        if variable in secrets:
            raise _error(f"two secrets for {variable!r}", "expected one secret per variable")
        secrets[variable] = name
    if len(secrets) > MAX_PER_JOB:
        raise _error(f"{len(secrets)} secrets", f"expected at most {MAX_PER_JOB}")
    return secrets


def _error(problem: str, fix: str) -> InputError:
    return InputError(problem, fix=fix, field="secrets")
