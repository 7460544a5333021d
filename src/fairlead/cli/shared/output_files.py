"""Output files that must not replace an input."""

from collections.abc import Mapping
from pathlib import Path

from fairlead.model.errors import UsageError


def refuse_overwriting(
    option: str, *outputs: Path, inputs: Mapping[str, str | Path | None]
) -> None:
    """Raise UsageError if an output is the file of an input option, also through a link."""
    for output in outputs:
        for name, given in inputs.items():
            if given is not None and _is_same_file(output, Path(given)):
                raise UsageError(
                    f"{option}: {output} is also read as {name}: expected another {option}"
                )


def _is_same_file(output: Path, read: Path) -> bool:
    try:
        return output.is_file() and output.samefile(read)
    except (OSError, ValueError):  # nothing to overwrite, or not a path: its reader says so
        return False
