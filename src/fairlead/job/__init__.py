"""Inside the training process: lease, steps, checkpoint. Needs the standard library only.

```python
from fairlead import job

run = job.attach()                        # outside the scheduler: a plain run, nothing changes
run.register(model=model, optimizer=opt)  # restored from the last checkpoint, if any
for batch in run.steps(loader):           # renews the lease; at its end checkpoints and leaves
    ...
```
"""

from fairlead.job.exit_status import FAILED_TO_SAVE, LEFT, REFUSED
from fairlead.job.run import Run, attach

__all__ = ["FAILED_TO_SAVE", "LEFT", "REFUSED", "Run", "attach"]
