"""Scheduling configs that a server must refuse without changing its data."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NoReturn

from tests.faults.checks.checks import Checks

from fairlead.core.jobs import JobState
from fairlead.live.config import LiveConfig
from fairlead.live.driver import Live
from fairlead.model.errors import InputError, UsageError
from fairlead.model.speeds.table import SpeedKey, SpeedTable

_NO_SPEEDS = SpeedTable({SpeedKey("unknown", 1, "v100"): 1.0})


def check_refusals(open_store: Callable[[], Any], config: LiveConfig, checks: Checks) -> None:
    """Try two unusable configs: the old one cannot be loaded, or the new one runs no job."""
    other = replace(config.scheduling, text="other config")
    unloadable = replace(
        config, scheduling=other, start_settings=other.name, load_scheduling=_fail_to_load
    )
    _try(open_store, unloadable, checks, lambda _: True)
    without_speeds = replace(config.scheduling, text="no speeds", beliefs=_NO_SPEEDS)
    strict = replace(config, scheduling=without_speeds, start_settings=without_speeds.name)
    _try(open_store, strict, checks, _has_jobs)


def _fail_to_load(text: str) -> NoReturn:
    raise InputError(f"unknown: {text!r}", fix="expected an installed policy", field="policy")


def _has_jobs(live: Live) -> bool:
    jobs = live.scheduler.jobs
    waiting = (JobState.ACTIVE, JobState.HELD)
    return any(state in waiting for state in jobs.state[: len(jobs)].tolist())


def _try(
    open_store: Callable[[], Any],
    config: LiveConfig,
    checks: Checks,
    must_refuse: Callable[[Live], bool],
) -> None:
    store = open_store()
    try:
        token = store.acquire("a server with another config")
        assert token is not None
        if store.load_state() is None:
            return  # no persisted state to read
        live = Live(store, None, config, token)  # type: ignore[arg-type]  # needs no engine
        live._recover()
        must_fail = must_refuse(live)
        if must_fail:
            live._switch_config()
    except UsageError as error:
        checks.note(f"config refused: {error}")
    else:
        checks.require(not must_fail, "an unusable scheduling config was accepted")
    finally:
        store.close()
