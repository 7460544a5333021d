"""Rules with which a server cannot go on: it must say so, and leave the data as they are."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NoReturn

from tests.faults.checks.checks import Checks

from fairlead.core.jobs import JobState
from fairlead.live.driver import Live, Setting
from fairlead.model.errors import InputError, UsageError
from fairlead.model.speeds.table import SpeedKey, SpeedTable

_NO_SPEEDS = SpeedTable({SpeedKey("unheard of", 1, "v100"): 1.0})


def refuse(open_store: Callable[[], Any], setting: Setting, checks: Checks) -> None:
    """Try to start under other rules: the old cannot be made any more, or the new run no job."""
    other = replace(setting.rules, text="other rules")
    _try(open_store, replace(setting, rules=other, remake=_cannot), checks, lambda _: True)
    unable = replace(setting.rules, text="no speeds", beliefs=_NO_SPEEDS)
    _try(open_store, replace(setting, rules=unable), checks, _has_jobs)


def _cannot(text: str) -> NoReturn:
    raise InputError(f"there is no policy {text!r}", fix="install it", field="policy")


def _has_jobs(live: Live) -> bool:
    jobs = live.scheduler.jobs
    waits = (JobState.ACTIVE, JobState.HELD)
    return any(state in waits for state in jobs.state[: len(jobs)].tolist())


def _try(
    open_store: Callable[[], Any],
    setting: Setting,
    checks: Checks,
    must_refuse: Callable[[Live], bool],
) -> None:
    store = open_store()
    try:
        token = store.acquire("a server under other rules")
        assert token is not None
        if store.load_state() is None:
            return  # nothing is written that would have to be read
        live = Live(store, None, setting, token)  # type: ignore[arg-type]  # it starts nothing
        live._rebuild()
        must = must_refuse(live)
        if must:
            live._go_by_rules()
    except UsageError as error:
        checks.note(f"a server is refused: {error}")
    else:
        checks.require(not must, "a server goes on under rules with which it cannot")
    finally:
        store.close()
