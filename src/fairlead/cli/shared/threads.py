"""How many threads a command uses."""

import os


def use_one_thread() -> None:
    """Let numpy compute on this thread only, to be called before it is imported.

    Our arrays are small: the threads of a pool would only wait, busily, and how many there are
    could show in the last bits of sums. Commands that start jobs must not call this.
    """
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
        os.environ.setdefault(name, "1")
