"""Runs the trials of an Optuna study as jobs.

```python
from fairlead.tuning.optuna import optimize

study = optuna.create_study(storage="sqlite:///study.db", study_name="lr", load_if_exists=True)
optimize(study, objective, n_trials=100, n_jobs=8)   # instead of study.optimize(…)
```

The jobs run the same script. In a job ``optimize`` runs the objective for the job's trial and ends
the process; parameters, intermediate values and results are in the study's storage, which the
nodes must reach.
"""

import math
import os
import pickle
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import optuna
from optuna.samplers import RandomSampler
from optuna.trial import FrozenTrial, TrialState

from fairlead.atomic_file import replace_file
from fairlead.client import Client, UnreachableError
from fairlead.model.errors import InputError
from fairlead.submitted_job import SubmittedJob

_TRIAL = "FAIRLEAD_OPTUNA_TRIAL"
_SAMPLER = "FAIRLEAD_OPTUNA_SAMPLER"
_JOB = "fairlead:job"
"""user attribute of a trial: id of its job"""
_PATIENCE_S = 600.0
"""time for which the server may be unreachable"""

# Optuna offers no public way to a trial of another process, so that its storage is used directly.
Objective = Callable[[optuna.Trial], "float | Sequence[float]"]


def optimize(
    study: optuna.Study,
    objective: Objective,
    n_trials: int,
    *,
    n_jobs: int = 1,
    sampler_file: str | Path | None = None,
    client: Client | None = None,
    poll_s: float = 1.0,
    **job: Any,
) -> None:
    """Run ``n_trials`` of a study as jobs, at most ``n_jobs`` at a time; ``job`` are its fields.

    With ``n_jobs=1`` the sampler's state goes from one trial to the next in ``sampler_file``
    (default: ``NAME.sampler`` here), so that a seed gives the results of ``study.optimize``.
    After a kill, run the script again: trials that have been begun are continued, and
    ``n_trials`` counts all trials of the study.
    """
    _require_shared(study)
    if _TRIAL in os.environ:
        _run_trial(study, objective, int(os.environ[_TRIAL]))
        sys.exit(0)
    path = Path(sampler_file or f"{study.study_name}.sampler").absolute() if n_jobs == 1 else None
    _Jobs(study, client or Client.from_environment(), path, job).run(n_trials, n_jobs, poll_s)


class _Jobs:
    """The jobs of a study's trials."""

    def __init__(
        self, study: optuna.Study, server: Client, sampler: Path | None, job: dict[str, Any]
    ) -> None:
        self._study, self._server, self._sampler, self._job = study, server, sampler, job

    def run(self, n_trials: int, n_jobs: int, poll_s: float) -> None:
        """Keep ``n_jobs`` trials running until the study has ``n_trials``."""
        reached_at = -math.inf
        while True:
            known = len(self._study.get_trials(deepcopy=False))
            for _ in range(min(n_jobs - len(self._open_trials()), n_trials - known)):
                self._ask()
            try:
                for trial in self._open_trials():
                    self._follow(trial)
                reached_at = time.monotonic()
            except UnreachableError:
                if time.monotonic() - reached_at > _PATIENCE_S:
                    raise
            if known >= n_trials and not self._open_trials():
                return
            time.sleep(poll_s)

    def _open_trials(self) -> list[FrozenTrial]:
        return self._study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))

    def _ask(self) -> None:
        """Create a trial; its job samples the parameters."""
        sampler, self._study.sampler = self._study.sampler, RandomSampler()
        try:
            self._study.ask()
        finally:
            self._study.sampler = sampler

    def _follow(self, trial: FrozenTrial) -> None:
        """Submit the job of a trial, or tell the study that it has failed."""
        job_id = trial.user_attrs.get(_JOB)
        if job_id is None:
            job_id = self._submit(trial).id
            self._study._storage.set_trial_user_attr(trial._trial_id, _JOB, job_id)
            return
        job = self._server.job(job_id)
        if job.has_ended and self._is_open(trial):
            self._study.tell(trial.number, state=TrialState.FAIL)

    def _is_open(self, trial: FrozenTrial) -> bool:
        return self._study._storage.get_trial(trial._trial_id).state == TrialState.RUNNING

    def _submit(self, trial: FrozenTrial) -> SubmittedJob:
        variables = {**self._job.get("environment", {}), _TRIAL: str(trial._trial_id)}
        if self._sampler is not None:
            variables[_SAMPLER] = str(self._sampler)
        name = self._study.study_name
        # A trial is created once, so that its time distinguishes it from those of a new study.
        key = f"optuna/{trial.datetime_start}/{trial.number}/{name}"[:128]
        settings = {"multijob": name, "name": f"{name}-{trial.number}"[:128], **self._job}
        return self._server.submit(
            self._job.get("command") or [sys.executable, *sys.argv],
            **{k: v for k, v in settings.items() if k != "command"}
            | {"environment": variables, "idempotency_key": key},
        )


def _run_trial(study: optuna.Study, objective: Objective, trial_id: int) -> None:
    """Run the objective of one trial in its job, and tell the study its result."""
    path = os.environ.get(_SAMPLER)
    if path is None:
        study.sampler.reseed_rng()
    elif Path(path).exists():
        study.sampler = pickle.loads(Path(path).read_bytes())
    if study._storage.get_trial(trial_id).state.is_finished():  # the job was killed after this
        return
    trial = optuna.Trial(study, trial_id)
    try:
        value = objective(trial)
    except optuna.TrialPruned:
        study.tell(trial, state=TrialState.PRUNED)
    else:
        study.tell(trial, value)
    if path is not None:
        replace_file(path, pickle.dumps(study.sampler))


def _require_shared(study: optuna.Study) -> None:
    """Raise InputError if other processes cannot open the study."""
    if isinstance(study._storage, optuna.storages.InMemoryStorage):
        fix = "expected create_study(storage=…), such as sqlite:///study.db"
        raise InputError("a study in memory", fix=fix, field="study")
