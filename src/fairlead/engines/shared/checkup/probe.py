"""The probe that a checkup runs on a node; its answer is a file in a shared directory.

``python -m fairlead.engines.shared.checkup.probe DIR NODE`` reads ``DIR/question.json`` and writes
``DIR/answers/NODE.json``. The checkup holds a lock on ``DIR/lock`` meanwhile: a node that gets the
lock shows that locks do not work across nodes.
"""

import fcntl
import json
import socket
import sys
import tempfile
import time
from pathlib import Path

from fairlead.atomic_file import replace_text
from fairlead.version import __version__

_TIMEOUT_S = 5.0


def write_question(directory: Path, host: str, port: int, node_dir: str = "") -> None:
    """Write the question for nodes: the address to connect to and the directory to write to."""
    (directory / "answers").mkdir()
    question = {"host": host, "port": port, "node_dir": node_dir}
    (directory / "question.json").write_text(json.dumps(question), encoding="ascii")
    (directory / "lock").touch()


def write_answer(directory: Path, node: str) -> None:
    """Write this node's answer."""
    question = json.loads((directory / "question.json").read_text(encoding="ascii"))
    answer = {
        "version": __version__,
        "python": sys.executable,
        "locks": _is_locked(directory / "lock"),
        "reaches": _connection_error(question["host"], int(question["port"])),
        "writes": _write_error(question["node_dir"].replace("{node}", node)),
        "at": time.time(),
    }
    replace_text(directory / "answers" / f"{node}.json", json.dumps(answer), durable=False)


def _is_locked(path: Path) -> bool:
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _connection_error(host: str, port: int) -> str:
    """Return the error of a connection to an address, empty if it succeeds."""
    try:
        with socket.create_connection((host, port), timeout=_TIMEOUT_S):
            return ""
    except OSError as error:
        return str(error)


def _write_error(directory: str) -> str:
    """Return the error of a write to a directory, empty if it succeeds or none was named."""
    try:
        if directory:
            Path(directory).mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=directory) as file:
                file.write(b"\0")
    except OSError as error:
        return f"{directory}: {error.strerror}"
    return ""


if __name__ == "__main__":
    write_answer(Path(sys.argv[1]), sys.argv[2])
