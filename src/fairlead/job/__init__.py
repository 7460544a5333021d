"""The job library: lease, steps and checkpoints of a training process. Standard library only.

```python
from fairlead import job

run = job.attach()                        # outside the scheduler: a plain run, nothing changes
run.register(model=model, optimizer=opt)  # restored from the last checkpoint, if any
for batch in run.steps(loader):           # renews the lease; at its end checkpoints and leaves
    ...
```
"""

from fairlead.job.current_run import attach
from fairlead.job.exit_status import (
    EXIT_FENCED,
    EXIT_PREEMPTED,
    EXIT_SAVE_FAILED,
    FAILED_TO_SAVE,
    LEFT,
    REFUSED,
)
from fairlead.job.run import Run

__all__ = [
    "EXIT_FENCED",
    "EXIT_PREEMPTED",
    "EXIT_SAVE_FAILED",
    "FAILED_TO_SAVE",
    "LEFT",
    "REFUSED",
    "Run",
    "attach",
]
