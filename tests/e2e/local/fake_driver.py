"""A small libcuda.so.1 with the driver's checkpoint API, for machines without a GPU.

A process uses CUDA if the directory ``CUDA_FAKE_DIR`` has a file with its ID, which holds its
state. A file ``fail.NAME`` makes a function fail, ``kill.NAME`` makes it kill the keeper that
waits for it.
"""

import os
import subprocess
from pathlib import Path

SOURCE = r"""
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static FILE *file(const char *name, const char *mode) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", getenv("CUDA_FAKE_DIR"), name);
    return fopen(path, mode);
}

static int requested(const char *what, const char *name) {
    char text[64];
    snprintf(text, sizeof text, "%s.%s", what, name);
    FILE *request = file(text, "r");
    return request ? (fclose(request), 1) : 0;
}

static int change(int pid, const char *name, char from, char to) {
    char text[16], state = 0;
    if (requested("fail", name)) return 2;
    snprintf(text, sizeof text, "%d", pid);
    FILE *states = file(text, "r+");
    if (!states || fread(&state, 1, 1, states) != 1 || state != from) return 1;
    rewind(states);
    fputc(to, states);
    fclose(states);
    FILE *log = file("log", "a");
    fprintf(log, "%s %d\n", name, pid);
    fclose(log);
    if (requested("kill", name)) kill(getppid(), SIGKILL);
    return 0;
}

int cuInit(unsigned flags) { return flags; }
int cuGetErrorName(int error, const char **name) { *name = error == 2 ? "OUT" : "BAD"; return 0; }
int cuCheckpointProcessGetState(int pid, int *state) {
    char text[16];
    snprintf(text, sizeof text, "%d", pid);
    FILE *states = file(text, "r");
    if (!states) return 1;
    *state = fgetc(states) - '0';
    return fclose(states);
}
int cuCheckpointProcessLock(int pid, void *args) { return change(pid, "Lock", '0', '1'); }
int cuCheckpointProcessCheckpoint(int pid, void *a) { return change(pid, "Checkpoint", '1', '2'); }
int cuCheckpointProcessRestore(int pid, void *args) { return change(pid, "Restore", '2', '1'); }
int cuCheckpointProcessUnlock(int pid, void *args) { return change(pid, "Unlock", '1', '0'); }
"""


class FakeDriver:
    """The library and the directory that controls it."""

    def __init__(self, root: Path) -> None:
        self.libraries, self._directory = root / "lib", root / "cuda"
        self.libraries.mkdir()
        self._directory.mkdir()
        command = ["cc", "-shared", "-fPIC", "-x", "c", "-", "-o"]
        command.append(str(self.libraries / "libcuda.so.1"))
        subprocess.run(command, input=SOURCE, text=True, check=True)
        self.environment = {
            "LD_LIBRARY_PATH": str(self.libraries),
            "CUDA_FAKE_DIR": str(self._directory),
        }

    def request(self, what: str) -> None:
        """Request that a function fails or kills from now on."""
        (self._directory / what).touch()

    def withdraw(self, what: str) -> None:
        os.unlink(self._directory / what)

    def calls(self) -> list[str]:
        """Return the calls since the last time, oldest first."""
        try:
            log = (self._directory / "log").read_text().splitlines()
            (self._directory / "log").unlink()
        except FileNotFoundError:
            return []
        return [line.split()[0] for line in log]
