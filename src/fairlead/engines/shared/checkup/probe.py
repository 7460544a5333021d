"""What a node can do for a scheduler elsewhere: run there, it leaves an answer in a directory.

``python -m fairlead.engines.shared.checkup.probe DIR NODE`` reads ``DIR/question.json`` and writes
``DIR/answers/NODE.json``. Whoever asks holds a lock on ``DIR/lock`` meanwhile, so that a node that
gets it shows that locks do not reach across machines.
"""

import fcntl
import json
import socket
import sys
import tempfile
import time
from pathlib import Path

from fairlead import __version__

_PATIENCE_S = 5.0


def ask(directory: Path, host: str, port: int, node_dir: str = "") -> None:
    """Leave a question for nodes: who sees it, and is that address reached from there?

    With ``node_dir``, a directory of each node's own: can it be written to?
    """
    (directory / "answers").mkdir()
    question = {"host": host, "port": port, "node_dir": node_dir}
    (directory / "question.json").write_text(json.dumps(question), encoding="ascii")
    (directory / "lock").touch()


def answer(directory: Path, node: str) -> None:
    """Say what this node sees."""
    question = json.loads((directory / "question.json").read_text(encoding="ascii"))
    found = {
        "version": __version__,
        "python": sys.executable,
        "locks": _is_locked(directory / "lock"),
        "reaches": _reach(question["host"], int(question["port"])),
        "writes": _write(question["node_dir"].replace("{node}", node)),
        "at": time.time(),
    }
    aside = directory / "answers" / f".{node}"
    aside.write_text(json.dumps(found), encoding="ascii")
    aside.rename(directory / "answers" / f"{node}.json")


def _is_locked(path: Path) -> bool:
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _reach(host: str, port: int) -> str:
    """Return why an address is not reached, empty if it is."""
    try:
        with socket.create_connection((host, port), timeout=_PATIENCE_S):
            return ""
    except OSError as error:
        return str(error)


def _write(directory: str) -> str:
    """Return why a directory cannot be written to, empty if it can or none was named."""
    try:
        if directory:
            Path(directory).mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=directory) as file:
                file.write(b"\0")
    except OSError as error:
        return f"{directory}: {error.strerror}"
    return ""


if __name__ == "__main__":
    answer(Path(sys.argv[1]), sys.argv[2])
