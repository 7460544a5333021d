"""Warning about scripts that every preemption would start from the beginning."""

from collections.abc import Sequence
from pathlib import Path

_SCRIPTS = (".py", ".sh", ".bash")
_SIGNS = (b"fairlead", b"FAIRLEAD_CHECKPOINT_DIR")
"""texts of a script that writes checkpoints, with the library or without"""
_MAX_BYTES = 1 << 20


def preempt_warning(preempt: str, command: Sequence[str], directory: str) -> str | None:
    """Return a warning if a job may be preempted though its script writes no checkpoint.

    Looks for the job library and the checkpoint directory in the scripts of the command; a
    command without a script cannot be judged.
    """
    if preempt != "yes":
        return None
    texts = {word: _text(Path(directory) / word) for word in command if word.endswith(_SCRIPTS)}
    scripts = {word: text for word, text in texts.items() if text is not None}
    if not scripts or any(sign in text for text in scripts.values() for sign in _SIGNS):
        return None
    return (
        f"{', '.join(scripts)}: uses neither fairlead.job nor FAIRLEAD_CHECKPOINT_DIR: with"
        " --preempt yes each preemption starts it from the beginning; expected checkpoints, or"
        " --preempt auto"
    )


def _text(path: Path) -> bytes | None:
    try:
        with path.open("rb") as file:
            return file.read(_MAX_BYTES)
    except OSError:
        return None
