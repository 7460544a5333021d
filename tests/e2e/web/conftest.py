"""A server with real jobs, and an admin in a real Chromium."""

import sys
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, expect
from tests.e2e.support.live_server import LiveServer
from tests.e2e.web.browser import Visitor, open_browser
from tests.e2e.web.hostile_job import ATTACK, HOSTILE

WAITING = 90
"""jobs that wait for another one: more than the list draws"""
TRUE_SPEEDS = "workload,gang,accelerator,steps_per_s\nsmall,1,v100,90\nsmall,1,k80,60\n"
"""slower than the server's table says"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    made = LiveServer(tmp_path_factory.mktemp("web"), devices="v100=2,k80=2", round_s=5.0)
    truth = made.root / "truth.csv"
    truth.write_text(TRUE_SPEEDS)
    made.extra = ("--trust-jobs", "--emulated-speeds", str(truth))
    made.start()
    yield made
    made.clean_up()


@pytest.fixture(scope="module")
def jobs(server: LiveServer) -> dict[str, str]:
    """A training, a hostile job, and many that wait, by their names."""
    train = [sys.executable, str(server.root / "train.py"), "100000", str(server.root / "out")]
    hostile = [sys.executable, "-c", HOSTILE]
    common: dict[str, Any] = {"workload": "small", "steps": 100_000}
    submit, attack = server.client.submit, trial(ATTACK, ATTACK)
    made = {
        "training": submit(train, tenant="red", name="training", **common, **trial("0.1"))["id"],
        "hostile": submit(hostile, tenant=ATTACK, name=ATTACK, **common, **attack)["id"],
    }
    after = [made["training"]]
    for i in range(WAITING):
        more = trial("0.01") if i == 0 else {}
        name = f"waiting-{i:03}"
        submit(["true"], tenant="red", workload="small", name=name, after=after, **more)
    return made


def trial(value: str, label: str = "lr") -> dict[str, Any]:
    """Return the fields of a trial of a search named like its hyperparameter."""
    return {"multijob": label, "hyperparameters": {label: value}}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    expect.set_options(timeout=60_000)  # on a busy machine
    with open_browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def url(server: LiveServer) -> str:
    return f"http://127.0.0.1:{server.port}"


@pytest.fixture(scope="module")
def guest(browser: Browser, url: str) -> Iterator[Visitor]:
    """A browser in which tests log in and out."""
    visitor = Visitor(browser, url)
    yield visitor
    visitor.close()


@pytest.fixture(scope="module")
def admin(
    browser: Browser, url: str, server: LiveServer, jobs: dict[str, str]
) -> Iterator[Visitor]:
    assert jobs
    visitor = Visitor(browser, url).log_in((server.data / "admin.token").read_text())
    yield visitor
    visitor.close()
