"""Profiles on the devices of a server: one short job for each accelerator."""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from fairlead.cli.shared.termination import exit_on_sigterm, sigterm_deferred
from fairlead.client import Client, ServerError
from fairlead.job.profile import METRICS, VARIABLE, Speed
from fairlead.model.errors import InputError
from fairlead.model.submission.new_job import NewJob
from fairlead.submitted_job import SubmittedJob

_POLL_S = 0.3
Seen = Callable[[str, SubmittedJob], None]


@dataclass(frozen=True, slots=True)
class ProfileJobs:
    """The jobs of a profile, by accelerator, and the reasons for which some gave no speed."""

    speeds: Mapping[str, Speed]
    failures: Sequence[InputError]


def accelerators_of(server: Client, wanted: Sequence[str]) -> list[str]:
    """Return the accelerators of the nodes that can start jobs; InputError for an unknown one."""
    usable = [
        node
        for node in server.get("/v1/nodes")
        if node["up"] and not node["cordoned"] and not node["drained"]
    ]
    present = list(dict.fromkeys(name for node in usable for name in node["devices"]))
    for name in wanted:
        if name not in present:
            raise InputError(
                f"no node that is up has {name!r}",
                fix=f"expected some of {', '.join(present) or 'none: see `fairlead nodes list`'}",
                field="--accelerators",
            )
    if not present:
        raise InputError("no node is up", fix="see `fairlead nodes list`", field="--accelerators")
    return list(wanted) or present


def run_jobs(
    server: Client,
    job: Mapping[str, Any],
    accelerators: Sequence[str],
    *,
    steps: tuple[int, int],
    timeout_s: float,
    seen: Seen,
) -> ProfileJobs:
    """Run one job per accelerator, all at once; jobs that have not ended are cancelled.

    Also if SIGTERM ends this process.
    """
    exit_on_sigterm()
    submitted: dict[str, SubmittedJob] = {}
    try:
        for name in accelerators:
            with sigterm_deferred():  # a job whose id is not known cannot be cancelled
                submitted[name] = _submit(server, job, name, steps)
        return _collect(server, submitted, timeout_s, seen)
    finally:
        for one in submitted.values():
            with suppress(ServerError):  # already ended, or the server cannot be reached
                if not server.job(one.id).has_ended:
                    server.cancel(one.id, force=True)


def _submit(
    server: Client, job: Mapping[str, Any], accelerator: str, steps: tuple[int, int]
) -> SubmittedJob:
    warmup, measured = steps
    path = {"PATH": os.environ["PATH"]} if server.is_here and "PATH" in os.environ else {}
    new = NewJob(
        **job,
        name=f"profile on {accelerator}",
        accelerators=(accelerator,),
        environment={**path, VARIABLE: f"{warmup}:{measured}"},
        steps=warmup + measured,
        preempt="no",  # an interruption is no part of the speed
        allow_short=True,
        retries=0,
    )
    return SubmittedJob(server.post("/v1/jobs", new.message()))


def _collect(
    server: Client, submitted: Mapping[str, SubmittedJob], timeout_s: float, seen: Seen
) -> ProfileJobs:
    until = time.monotonic() + timeout_s
    speeds: dict[str, Speed] = {}
    failures: list[InputError] = []
    waiting = dict(submitted)
    while waiting:
        for name, one in list(waiting.items()):
            job = server.job(one.id)
            seen(name, job)
            if job.has_ended:
                del waiting[name]
                speed = _speed_of(job)
                if speed is None:
                    failures.append(_failure(name, job))
                else:
                    speeds[name] = speed
        if waiting and time.monotonic() > until:
            failures += [_too_late(name, one.id, timeout_s) for name, one in waiting.items()]
            break
        time.sleep(_POLL_S if waiting else 0.0)
    return ProfileJobs(speeds, failures)


def _speed_of(job: SubmittedJob) -> Speed | None:
    values = [job.metrics.get(name) for name in METRICS]
    known = [value for value in values if value is not None]
    return Speed(*known) if len(known) == len(METRICS) and job.has_succeeded else None


def _failure(accelerator: str, job: SubmittedJob) -> InputError:
    if job.has_succeeded:
        return InputError(
            f"job {job.id} ended before all steps were measured",
            fix="expected a program that makes its steps with fairlead.job (run.steps), and"
            " enough of them: see --steps",
            field=accelerator,
        )
    return InputError(
        f"job {job.id} {job.state}: {job['message'] or 'no reason is known'}",
        fix=f"see `fairlead logs {job.id}`",
        field=accelerator,
    )


def _too_late(accelerator: str, job_id: str, timeout_s: float) -> InputError:
    return InputError(
        f"job {job_id} had not ended after {timeout_s:g} s and was cancelled",
        fix="expected free devices, fewer --steps or a longer --timeout",
        field=accelerator,
    )
