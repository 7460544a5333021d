"""Number of threads of a command."""

import os


def use_one_thread() -> None:
    """Make numpy compute on this thread only; call it before numpy is imported.

    The arrays are small: threads of a pool would only spin, and their number could change the last
    bits of sums. Commands that start jobs must not call this.
    """
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
        os.environ.setdefault(name, "1")
