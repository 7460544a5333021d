"""A job that reports markup as its name, log and metrics."""

ATTACK = "<img src=x onerror=window.hacked=1>"
HOSTILE = f"""
from fairlead import job
print({ATTACK!r}, flush=True)
run = job.attach()
for i in run.steps(range(100000)):
    run.report(**{{{ATTACK!r}: float(i)}})
"""
