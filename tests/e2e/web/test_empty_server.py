"""The web pages on a server without jobs: a thousand devices, files, the first job."""

import ast
import shlex
from collections.abc import Iterator
from http.client import HTTPConnection
from typing import Any

import pytest
from playwright.sync_api import expect
from tests.e2e.support.live_server import LiveServer
from tests.e2e.web.browser import Visitor, chromium

from fairlead.files.job_file import parse_job_file
from fairlead.files.parsing.text import SourceText

pytestmark = pytest.mark.skipif(chromium() is None, reason="Chromium is not installed")

EMPTY = {
    "jobs": "No job matches.",
    "searches": "No search yet",
    "cluster": "0 of 1000 used",
    "timeline": "devices 1 to 1000 of 1008",
    "tenants": "No tenant has submitted a job yet.",
    "speeds": "No job is active.",
    "submit": "fairlead submit",
    "simulate": "You have run no simulation",
    "policy": "Show consequences",
    "tokens": "Tokens of this server",
    "audit": "No entry matches.",
}
"""page → text of it while there are no jobs"""
FIRST_PAGE_BYTES = 400_000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    root = tmp_path_factory.mktemp("empty")
    made = LiveServer(root, devices="v100=1000/8,k80=8/8", round_s=30.0)
    made.start()
    yield made
    made.clean_up()


@pytest.fixture(scope="module")
def admin(guest: Visitor, server: LiveServer) -> Visitor:
    return guest.log_in((server.data / "admin.token").read_text())


def test_pages_without_jobs_show_a_thousand_devices(admin: Visitor) -> None:
    sizes = "performance.getEntriesByType('resource').map((file) => file.encodedBodySize)"
    assert 50_000 < sum(admin.page.evaluate(sizes)) < FIRST_PAGE_BYTES
    for address, text in EMPTY.items():
        page = admin.open(address)
        expect(page.locator("main").get_by_text(text).first).to_be_attached()
        assert page.locator(".notice.error, .notice.forbidden").count() == 0, address
        if address == "cluster":
            expect(page.locator(".square")).to_have_count(1008)
    assert (admin.errors, admin.foreign) == ([], [])


def test_a_submitted_job_equals_its_command_line_file_and_script(admin: Visitor) -> None:
    page = admin.open("submit")
    values = {"Gang": "0", "Steps": "12", "Tenant": "red", "Accelerators": "v100, k80"}
    values["Workload"] = "small"
    page.get_by_label("Command", exact=True).first.fill("echo 'two words'")
    page.get_by_label("Environment").fill("A=1\nB=x=y")
    for label, value in values.items():
        page.get_by_label(label, exact=True).fill(value)
    page.get_by_role("button", name="Submit").click()
    expect(page.get_by_role("alert")).to_contain_text("gang")
    expect(page.get_by_label("Gang", exact=True)).to_have_attribute("aria-invalid", "true")
    page.get_by_label("Gang", exact=True).fill("1")
    line = page.locator("pre[aria-label='Command line']").inner_text()
    assert shlex.split(line)[:4] == ["fairlead", "submit", "--tenant", "red"]
    assert shlex.split(line)[-5:] == ["--env", "B=x=y", "--", "echo", "two words"]
    text = page.locator("pre[aria-label='Job file']").inner_text()
    assert parse_job_file(SourceText("job.yaml", text)).values == {
        "command": ("echo", "two words"),
        "environment": {"A": "1", "B": "x=y"},
        "tenant": "red",
        "gang": 1,
        "steps": 12,
        "accelerators": ("v100", "k80"),
        "workload": "small",
    }
    call: Any = ast.parse(page.locator("pre[aria-label='Python']").inner_text()).body[-1]
    assert {word.arg for word in call.value.keywords} >= {"gang", "environment"}
    page.get_by_role("button", name="Submit").click()
    expect(page.locator("pre[aria-label='Command']")).to_have_text("echo two words")
    page.get_by_role("link", name="Clone").click()
    expect(page.get_by_label("Command", exact=True).first).to_have_value("echo 'two words'")
    copy = page.locator("pre[aria-label='Command line']").inner_text()
    assert copy == "fairlead submit --tenant red --workload small --steps 12 -- echo 'two words'"


def test_files_have_a_strict_policy_and_are_sent_once(url: str) -> None:
    connection = HTTPConnection(url.removeprefix("http://"))
    connection.request("GET", "/")
    first = connection.getresponse()
    assert first.status == 200
    assert first.read()
    policy = first.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert first.headers["X-Content-Type-Options"] == "nosniff"
    assert first.headers["Referrer-Policy"] == "no-referrer"
    connection.request("GET", "/", headers={"If-None-Match": first.headers["ETag"]})
    again = connection.getresponse()
    assert (again.status, again.read()) == (304, b"")
    for path in ("/web/../routes.py", "/web/vendor/vendored.toml", "/web/nothing.js"):
        connection.request("GET", path)
        missing = connection.getresponse()
        assert (missing.status, b"missing" in missing.read()) == (404, True)
    connection.close()
