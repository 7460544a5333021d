"""Runs ``fairlead`` in a fork for each request; ``forks.py`` starts it and says what to import."""

import gc
import json
import os
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, NoReturn

import typer.main

from fairlead.cli.main import app, run

_MAX_REQUEST = 1 << 17


def serve(descriptor: int, modules: Sequence[str]) -> None:
    """Fork for each request until the connection is closed."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # ended forks disappear
    commands: Any = typer.main.get_command(app)
    list(commands.commands.values())  # loads their modules and the rest of Typer
    for name in modules:
        import_module(name)
    gc.freeze()
    with socket.socket(fileno=descriptor) as requests:
        os.set_inheritable(descriptor, False)
        while True:
            request, descriptors, _, _ = socket.recv_fds(requests, _MAX_REQUEST, 3)
            for each in descriptors:
                os.set_inheritable(each, False)  # a keeper must not hold them
            if not request:
                return
            if os.fork() == 0:
                requests.close()
                _run(*json.loads(request), *descriptors)
            for each in descriptors:
                os.close(each)


def _run(
    command: Sequence[str],
    environment: Mapping[str, str],
    directory: str,
    out: int,
    err: int,
    answers: int,
) -> NoReturn:
    """Run a command as a new process would; send its PID first and its exit code last."""
    os.write(answers, str(os.getpid()).encode())
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.dup2(out, 1)
    os.dup2(err, 2)
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv[:] = command
    code: object = 1
    try:
        run()
    except SystemExit as ended:
        code = ended.code or 0
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os.write(answers, str(code).encode())
        os._exit(0)


if __name__ == "__main__":
    serve(int(sys.argv[1]), sys.argv[2:])
