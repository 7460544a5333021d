"""The web pages in a real Chromium, on a real server with real jobs."""

import ast
import re
import shlex
import sys
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from typing import Any, Literal

import pytest
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]  # no types
from playwright.sync_api import Browser, expect
from tests.e2e.support.live_server import LiveServer
from tests.e2e.web.browser import Visitor, chromium, open_browser

from fairlead.files.job_file import parse_job_file
from fairlead.files.parsing.text import SourceText

pytestmark = pytest.mark.skipif(chromium() is None, reason="Chromium is not installed")

ATTACK = "<img src=x onerror=window.hacked=1>"
HOSTILE = f"""
from fairlead import job
print({ATTACK!r}, flush=True)
run = job.attach()
for i in run.steps(range(100000)):
    run.report(**{{{ATTACK!r}: float(i)}})
"""
PAGES = (
    *("jobs?search=training", "jobs/{job}", "cluster", "tenants", "speeds", "submit"),
    "audit?action=token",
)
UPDATE_MS = 4_000
"""twice the promised time, for busy machines; less than the time between two polls"""
WAITING = 90
"""jobs that wait for another one: more than the list draws"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    made = LiveServer(tmp_path_factory.mktemp("web"), devices="v100=2,k80=2", round_s=5.0)
    made.extra = ("--trust-jobs",)
    made.start()
    yield made
    made.clean_up()


@pytest.fixture(scope="module")
def jobs(server: LiveServer) -> dict[str, str]:
    """A training, a hostile job, and many that wait, by their names."""
    train = [sys.executable, str(server.root / "train.py"), "100000", str(server.root / "out")]
    hostile = [sys.executable, "-c", HOSTILE]
    common: dict[str, Any] = {"workload": "small", "steps": 100_000}
    submit = server.client.submit
    made = {
        "training": submit(train, tenant="red", name="training", **common)["id"],
        "hostile": submit(hostile, tenant=ATTACK, name=ATTACK, **common)["id"],
    }
    after = [made["training"]]
    for i in range(WAITING):
        submit(["true"], tenant="red", workload="small", name=f"waiting-{i:03}", after=after)
    return made


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with open_browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def url(server: LiveServer) -> str:
    return f"http://127.0.0.1:{server.port}"


@pytest.fixture(scope="module")
def admin(
    browser: Browser, url: str, server: LiveServer, jobs: dict[str, str]
) -> Iterator[Visitor]:
    assert jobs
    visitor = Visitor(browser, url).log_in((server.data / "admin.token").read_text())
    yield visitor
    visitor.close()


def _visitor_with_token(
    browser: Browser, server: LiveServer, url: str, **token: object
) -> Visitor:
    made = server.client.post("/v1/tokens", {"name": "visitor", **token})
    return Visitor(browser, url).log_in(made["token"])


def test_a_wrong_token_is_refused_and_a_session_keeps_no_token(
    browser: Browser, url: str, admin: Visitor, server: LiveServer
) -> None:
    outsider = Visitor(browser, url)
    outsider.page.goto("/")
    outsider.page.get_by_label("Token").fill("fl_0123_nonsense")
    outsider.page.get_by_role("button", name="Log in").click()
    expect(outsider.page.get_by_role("alert")).to_contain_text("unknown token")
    assert outsider.cookies() == []
    outsider.close()
    token = (server.data / "admin.token").read_text()
    (cookie,) = admin.cookies()
    assert (cookie["httpOnly"], cookie["sameSite"], cookie["path"]) == (True, "Strict", "/v1")
    readable = admin.page.evaluate("JSON.stringify([document.cookie, {...localStorage}])")
    secret = token.rpartition("_")[2]
    assert secret not in readable
    assert secret not in str(cookie["value"])


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 390)])
def test_every_page_is_accessible_and_quiet_and_stays_with_its_server(
    browser: Browser,
    url: str,
    server: LiveServer,
    jobs: dict[str, str],
    scheme: Literal["light", "dark"],
    width: int,
) -> None:
    visitor = Visitor(browser, url, scheme=scheme, width=width)
    visitor.log_in((server.data / "admin.token").read_text())
    for address in PAGES:
        page = visitor.open(address.format(job=jobs["training"]))
        assert page.locator(".notice.error, .notice.forbidden").count() == 0, address
        assert page.locator("main > :first-child").locator("xpath=self::h1|h1").count(), address
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), address
        serious = [
            (fault["id"], [node["html"] for node in fault["nodes"]])
            for fault in Axe().run(page).response["violations"]
            if fault["impact"] in ("serious", "critical")
        ]
        assert serious == [], address
    assert (visitor.errors, visitor.foreign) == ([], [])
    visitor.close()


def test_the_list_draws_only_the_rows_in_view_and_finds_the_others(admin: Visitor) -> None:
    page = admin.open("jobs")
    rows = page.locator(".rows [role=row]")
    expect(page.get_by_text(f"{WAITING + 2} jobs")).to_be_visible()
    assert rows.count() <= 60
    page.get_by_role("table").locator(".rows").evaluate("e => e.scrollTo(0, e.scrollHeight)")
    expect(page.get_by_role("link", name="j1", exact=True)).to_be_visible()
    assert rows.count() <= 60
    page.get_by_label("Search").fill("waiting-071")
    expect(page.get_by_text("1 job", exact=True)).to_be_visible(timeout=UPDATE_MS)
    page.get_by_label("Search").fill("")
    page.get_by_role("button", name="name").click()
    expect(page.get_by_role("columnheader", name="name")).to_have_attribute(
        "aria-sort", "ascending"
    )
    page.get_by_label("State").select_option("running")
    expect(rows).to_have_count(2)


def test_pages_follow_events_without_a_reload(
    admin: Visitor, server: LiveServer, jobs: dict[str, str]
) -> None:
    page = admin.open("jobs?search=newcomer")
    expect(page.get_by_text("No job matches.")).to_be_visible()
    server.client.submit(["true"], tenant="red", workload="small", name="newcomer")
    expect(page.get_by_role("cell", name="newcomer")).to_be_visible(timeout=UPDATE_MS)

    page = admin.open("cluster")
    training = page.get_by_role("link", name=f"{jobs['training']} of red")
    expect(training).to_be_visible()
    node = server.client.get("/v1/nodes")[0]["id"]
    server.client.post(f"/v1/nodes/{node}/cordon")
    expect(page.get_by_text("cordoned")).to_be_visible(timeout=UPDATE_MS)
    server.client.post(f"/v1/nodes/{node}/return")
    expect(page.get_by_text("cordoned")).to_be_hidden(timeout=UPDATE_MS)

    page = admin.open("tenants")
    server.client.ask("PUT", "/v1/tenants/late", {"id": "late", "weight": 3.0})
    expect(page.get_by_role("heading", name="late")).to_be_visible(timeout=UPDATE_MS)


def test_the_page_of_a_job_shows_its_life_and_changes_it(
    admin: Visitor, server: LiveServer, jobs: dict[str, str]
) -> None:
    job = jobs["training"]
    page = admin.open(f"jobs/{job}")
    expect(page.get_by_text("running", exact=True)).to_be_visible()
    expect(page.locator(".curve canvas").first).to_be_visible()
    expect(page.get_by_text(f"job {job} makes")).to_be_visible()
    expect(page.get_by_role("cell", name="v100").first).to_be_visible()
    expect(page.get_by_text("in 1")).to_be_visible()  # the probable end
    page.get_by_label("Priority").fill("7")
    page.get_by_role("button", name="Change").click()
    _until(lambda: server.client.job(job)["priority"] == 7)
    page.get_by_role("button", name="Suspend").click()
    expect(page.get_by_text("suspended", exact=True)).to_be_visible(timeout=UPDATE_MS)
    expect(page.locator("pre.log")).to_contain_text("left after step")
    page.get_by_role("button", name="Resume").click()
    expect(page.get_by_role("button", name="Suspend")).to_be_visible(timeout=UPDATE_MS)
    doomed = server.client.submit(["sleep", "600"], tenant="red", workload="small")["id"]
    page = admin.open(f"jobs/{doomed}")
    page.once("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Cancel").click()
    expect(page.get_by_text("cancelled", exact=True)).to_be_visible(timeout=UPDATE_MS)


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


def test_names_logs_and_metrics_of_a_hostile_tenant_stay_text(
    admin: Visitor, server: LiveServer, jobs: dict[str, str]
) -> None:
    server.client.post("/v1/tokens", {"name": ATTACK, "role": "viewer"})
    page = admin.open(f"jobs/{jobs['hostile']}")
    expect(page.locator("pre.log")).to_contain_text(ATTACK)
    expect(page.locator(".curve").first).to_have_attribute(
        "aria-label", re.compile(re.escape(ATTACK))
    )
    for address in ("jobs?search=onerror", "cluster", "tenants", "audit?action=token"):
        expect(admin.open(address).get_by_text(ATTACK).first).to_be_attached()
        assert page.locator("img[src=x]").count() == 0
    assert page.evaluate("window.hacked") is None


def test_a_tenant_sees_its_own_jobs_and_pages_only(
    browser: Browser, server: LiveServer, url: str, jobs: dict[str, str]
) -> None:
    tenant = _visitor_with_token(browser, server, url, role="tenant", tenant="blue")
    page = tenant.open("jobs")
    expect(page.get_by_text("No job matches.")).to_be_visible()
    assert page.get_by_role("navigation").inner_text().split() == [
        *("Jobs", "Cluster", "Tenants", "Speeds", "Submit")
    ]
    page = tenant.open("cluster")
    expect(page.get_by_text("other tenants")).to_be_visible()
    assert "red" not in page.locator("main").inner_text()
    assert page.locator(".square[href]").count() == 0
    page = tenant.open("audit")
    expect(page.get_by_role("heading", name="Not found")).to_be_visible()
    page.evaluate("address => { location.hash = address; }", f"#/jobs/{jobs['training']}")
    expect(page.get_by_role("alert")).to_contain_text("no job")
    tenant.page.get_by_role("button", name="Log out").click()
    expect(page.get_by_label("Token")).to_be_visible()
    assert tenant.cookies() == []
    tenant.close()
    viewer = _visitor_with_token(browser, server, url, role="viewer")
    page = viewer.open(f"jobs/{jobs['training']}")
    expect(page.get_by_text("Progress")).to_be_visible()
    assert page.get_by_role("button", name="Cancel").count() == 0
    viewer.close()


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


def test_a_page_tells_that_it_is_stale_until_the_server_is_back(
    admin: Visitor, server: LiveServer
) -> None:
    page = admin.open("jobs?search=after-restart")
    server.stop()
    expect(page.get_by_text("these data may be outdated")).to_be_visible()
    server.start()
    expect(page.get_by_text("these data may be outdated")).to_be_hidden()
    server.client.submit(["true"], tenant="red", workload="small", name="after-restart")
    expect(page.get_by_role("cell", name="after-restart")).to_be_visible(timeout=UPDATE_MS)


def _until(condition: Any) -> None:
    until = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.02)
