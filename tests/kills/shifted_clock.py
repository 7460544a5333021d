"""Wall clock that jumps for chosen processes only, while they run.

Setting a machine's clock would disturb all its processes, and time namespaces shift only the
monotonic clock, which never jumps in a running process. Therefore a few lines of C, loaded before
the C library, add seconds from a shared file to every reading of the time of day; the monotonic
clock is unchanged, as when an operator or NTP sets the clock.
"""

import shutil
import struct
import subprocess
from pathlib import Path

_SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile long *shift;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("SHIFTED_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *mapped = mmap(0, sizeof(long), PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (mapped != MAP_FAILED) shift = mapped;
}

int clock_gettime(clockid_t clock, struct timespec *result) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int failed = real(clock, result);
    if (!failed && shift && clock == CLOCK_REALTIME) result->tv_sec += *shift;
    return failed;
}

int gettimeofday(struct timeval *result, void *zone) {
    struct timespec now;
    int failed = clock_gettime(CLOCK_REALTIME, &now);
    (void)zone;
    result->tv_sec = now.tv_sec;
    result->tv_usec = now.tv_nsec / 1000;
    return failed;
}

time_t time(time_t *result) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (result) *result = now.tv_sec;
    return now.tv_sec;
}
"""


def missing() -> str:
    """Return the reason why clocks cannot be shifted here, or an empty string."""
    return "" if shutil.which("cc") else "no C compiler"


class ShiftedClock:
    """Wall clock of all processes whose environment includes ``environment``."""

    def __init__(self, home: Path) -> None:
        self._file = home / "clock"
        self._file.write_bytes(struct.pack("=q", 0))
        source, library = home / "clock.c", home / "clock.so"
        source.write_text(_SOURCE, encoding="ascii")
        subprocess.run(
            ["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"], check=True
        )
        self.environment = {"LD_PRELOAD": str(library), "SHIFTED_CLOCK": str(self._file)}

    def shift(self, seconds: int) -> None:
        """Set the clock to the true time plus these seconds, also for running processes."""
        with self._file.open("r+b") as file:
            file.write(struct.pack("=q", seconds))
