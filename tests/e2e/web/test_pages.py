"""The web pages in a real Chromium, on a real server with real jobs."""

import re
from functools import partial
from urllib.parse import urlencode

import pytest
from playwright.sync_api import FilePayload, expect
from tests.e2e.support.live_server import LiveServer
from tests.e2e.web.accessibility import serious_faults
from tests.e2e.web.browser import Scheme, Visitor, chromium
from tests.e2e.web.conftest import WAITING
from tests.e2e.web.hostile_job import ATTACK
from tests.e2e.web.live_updates import UPDATES, shows_soon
from tests.e2e.web.page_actions import (
    apply,
    colours_in_the_last_columns,
    log_in_as,
    opens_a_job,
    tenant_of,
)
from tests.support.waiting import until

from fairlead.client import Client

pytestmark = pytest.mark.skipif(chromium() is None, reason="Chromium is not installed")

PAGES = (
    *("jobs?search=training", "jobs/{job}", "cluster", "timeline", "tenants", "speeds"),
    *("submit?clone={job}", "policy", "simulate", "tokens", "audit?action=token"),
    *("searches", "searches?tenant=red&name=lr"),
)
LOOKS: tuple[tuple[Scheme, int], ...] = (("dark", 390), ("light", 1280))


def test_a_wrong_token_is_refused_and_a_session_keeps_no_token(
    guest: Visitor, admin: Visitor, server: LiveServer
) -> None:
    guest.page.goto("/")
    guest.page.get_by_label("Token").fill("fl_0123_nonsense")
    guest.page.get_by_role("button", name="Log in").click()
    expect(guest.page.get_by_role("alert")).to_contain_text("unknown token")
    assert guest.cookies() == []
    token = (server.data / "admin.token").read_text()
    (cookie,) = admin.cookies()
    assert (cookie["httpOnly"], cookie["sameSite"], cookie["path"]) == (True, "Strict", "/v1")
    readable = admin.page.evaluate("JSON.stringify([document.cookie, {...localStorage}])")
    secret = token.split("_", 2)[2]  # the secret itself may hold underscores
    assert secret not in readable
    assert secret not in str(cookie["value"])


def test_every_page_is_accessible_and_quiet_and_stays_with_its_server(
    admin: Visitor, jobs: dict[str, str]
) -> None:
    admin.errors.clear()
    for address in PAGES:
        page = admin.open(address.format(job=jobs["training"]))
        assert page.locator(".notice.error, .notice.forbidden").count() == 0, address
        assert page.locator("main > :first-child").locator("xpath=self::h1|h1").count(), address
        for look in LOOKS:
            admin.look(*look)
            until(partial(page.evaluate, "document.documentElement.scrollWidth <= innerWidth"))
            assert serious_faults(page) == [], (address, look)
    assert (admin.errors, admin.foreign) == ([], [])


def test_the_list_draws_only_the_rows_in_view_and_finds_the_others(admin: Visitor) -> None:
    page = admin.open("jobs")
    rows = page.locator(".rows [role=row]")
    expect(page.get_by_text(f"{WAITING + 2} jobs")).to_be_visible()
    assert rows.count() <= 60
    page.get_by_role("table").locator(".rows").evaluate("e => e.scrollTo(0, e.scrollHeight)")
    expect(page.get_by_role("link", name="j1", exact=True)).to_be_visible()
    assert rows.count() <= 60
    page.get_by_label("Search").fill("waiting-071")
    expect(page.get_by_text("1 job", exact=True)).to_be_visible()
    page.get_by_label("Search").fill("")
    page.get_by_role("button", name="name").click()
    expect(page.get_by_role("columnheader", name="name")).to_have_attribute(
        "aria-sort", "ascending"
    )
    page.get_by_label("State").select_option("running")
    expect(rows).to_have_count(2)


@pytest.mark.parametrize("address", UPDATES)
def test_pages_show_an_event_within_two_seconds_without_a_reload(
    admin: Visitor, server: LiveServer, jobs: dict[str, str], address: str
) -> None:
    page = admin.open(address.format(job=jobs["training"]))
    shows_soon(page, server, UPDATES[address])
    for node in server.client.get("/v1/nodes"):
        if node["cordoned"]:
            server.client.post(f"/v1/nodes/{node['id']}/return")


def test_the_page_of_a_job_shows_its_life_and_changes_it(
    admin: Visitor, server: LiveServer, jobs: dict[str, str]
) -> None:
    job = jobs["training"]
    page = admin.open(f"jobs/{job}")
    expect(page.get_by_text("running", exact=True)).to_be_visible()
    expect(page.locator(".curve canvas").first).to_be_visible()
    expect(page.get_by_text(f"job {job} makes")).to_be_visible()
    expect(page.get_by_role("cell", name="v100").first).to_be_visible()
    probable_end = page.locator("dt", has_text="probable end").locator("xpath=following::dd[1]")
    expect(probable_end).to_have_text(re.compile(r"^in \d+"))
    page.get_by_label("Priority").fill("7")
    page.get_by_role("button", name="Change").click()
    until(lambda: server.client.job(job)["priority"] == 7)
    page.get_by_role("button", name="Suspend").click()
    expect(page.get_by_text("suspended", exact=True)).to_be_visible()
    expect(page.locator("pre.log")).to_contain_text("left after step")
    page.get_by_role("button", name="Resume").click()
    expect(page.get_by_role("button", name="Suspend")).to_be_visible()
    doomed = server.client.submit(["sleep", "600"], tenant="red", workload="small")["id"]
    page = admin.open(f"jobs/{doomed}")
    page.once("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Cancel").click()
    expect(page.get_by_text("cancelled", exact=True)).to_be_visible()
    expect(page.locator("dt", has_text="probable end")).to_have_count(0)


def test_the_timeline_shows_devices_over_time_and_opens_a_job(
    admin: Visitor, server: LiveServer, jobs: dict[str, str]
) -> None:
    page = admin.open("timeline")
    expect(page.get_by_role("link", name=jobs["training"], exact=True)).to_be_visible()
    chart = page.get_by_role("application")
    expect(chart).to_have_attribute("aria-label", re.compile("^4 devices from "))
    page.get_by_label("Span").select_option("1 minute")
    until(lambda: colours_in_the_last_columns(page) >= 2)
    page.get_by_role("button", name="Earlier").click()
    page.get_by_role("button", name="Earlier").click()
    expect(page.get_by_role("button", name="Now")).to_be_enabled()
    page.get_by_role("button", name="Now").click()
    page.get_by_role("button", name="Zoom out").click()
    expect(page.get_by_label("Span")).to_have_value("")
    page.get_by_label("Colours").select_option("by job")
    devices = server.client.get("/v1/timeline")["devices"]
    until(lambda: any(opens_a_job(page, row, device) for row, device in enumerate(devices)))
    names = (jobs["training"], jobs["hostile"])
    expect(page.get_by_role("heading", name=re.compile("|".join(names)))).to_be_visible()


def test_shares_over_time_audit_and_consequences_of_a_change(
    admin: Visitor, server: LiveServer
) -> None:
    page = admin.open("tenants")
    red = page.locator("section", has=page.get_by_role("heading", name="red", exact=True)).first
    expect(red).to_contain_text(re.compile(r"running jobs\s*[12]\s*waiting for devices\s*\d"))
    expect(red).to_contain_text("average devices")
    page.get_by_label("Span").select_option("10 minutes")
    chart = page.get_by_role("img", name="shares of red over time")
    expect(chart.locator("canvas")).to_be_visible()
    page.get_by_role("button", name="Audit now").click()
    expect(page.get_by_role("cell", name="envy", exact=True)).to_be_visible()

    page = admin.open("policy")
    page.get_by_label("Policy", exact=True).fill("no-such-policy")
    page.get_by_role("button", name="Show consequences").click()
    expect(page.get_by_role("alert")).to_contain_text("no-such-policy")
    page.get_by_label("Policy", exact=True).fill("oef")
    page.get_by_label("Devices: k80").fill("8")
    page.get_by_label("weight of red").fill("3")
    page.get_by_role("button", name="Show consequences").click()
    expect(page.get_by_role("heading", name="Tenants: max-min → oef")).to_be_visible()
    expect(page.get_by_role("region", name="Consequences per tenant")).to_contain_text("red")
    before = server.client.get("/v1/policy")
    assert before["policy"] == "max-min"
    page.get_by_label("Policy", exact=True).fill("")
    page.get_by_role("button", name="Show consequences").click()
    expect(page.get_by_role("heading", name="Tenants: max-min → max-min")).to_be_visible()
    page.once("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Apply").click()
    expect(page.get_by_text("Applied.")).to_be_visible()
    weights = {tenant["id"]: tenant["weight"] for tenant in server.client.get("/v1/tenants")}
    assert weights["red"] == 3.0
    assert server.client.get("/v1/policy") == before
    apply(page, {"Policy": "oef", "limit of red": "k80=1"})
    assert server.client.get("/v1/policy")["policy"] == "oef"
    assert tenant_of(server, "red")["limit"] == {"k80": 1}
    apply(page, {"Policy": "max-min", "weight of red": "1", "limit of red": "none"})
    assert server.client.get("/v1/policy")["policy"] == "max-min"
    assert (tenant_of(server, "red")["weight"], tenant_of(server, "red")["limit"]) == (1.0, {})


def test_the_cluster_tells_of_its_rounds_and_the_speeds_page_of_measured_speeds(
    admin: Visitor,
) -> None:
    page = admin.open("cluster")
    expect(page.get_by_text(re.compile(r"^5\.0 s, ends in \d"))).to_be_visible()
    changes = page.locator("section", has_text="Changes in the next round")
    expect(changes).to_contain_text(re.compile("They are|keeps its devices|start|stop"))
    page = admin.open("speeds")
    row = page.get_by_role("region", name="Measured speeds").get_by_role("row", name="small red")
    expect(row.first).to_contain_text(re.compile(r"(v100.*100−|k80.*80−)[\d.]+\s%"))
    row = page.get_by_role("region", name="Believed speeds").get_by_role("row", name="small red")
    expect(row.locator("svg.error-bar .mark").first).to_have_attribute("d", re.compile(r"^M\d"))


def test_an_admin_makes_a_token_that_is_shown_once_and_revokes_it(
    admin: Visitor, url: str
) -> None:
    page = admin.open("tokens")
    page.get_by_label("Name").fill("guest")
    page.get_by_label("Role").select_option("viewer")
    page.get_by_label("Valid for").fill("0.5")
    page.get_by_role("button", name="Make a token").click()
    token = page.locator("pre[aria-label='New token']").inner_text()
    guest = Client(url, token)
    assert guest.get("/v1/session")["role"] == "viewer"
    page.once("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Revoke the token of guest").click()
    expect(page.get_by_role("button", name="Revoke the token of guest")).to_be_hidden()
    assert token not in page.locator("body").inner_text()
    assert guest.raw("GET", "/v1/session")[0] == 401
    guest.close()


def test_a_simulation_runs_beside_the_server_and_can_be_cancelled(
    admin: Visitor, server: LiveServer
) -> None:
    page = admin.open("simulate")
    page.get_by_label("Policies").fill("max-min nonsense")
    page.get_by_role("button", name="Simulate").click()
    expect(page.get_by_role("alert")).to_contain_text("nonsense")
    expect(page.get_by_text("Installed policies")).to_contain_text("srtf")
    trace = "job_id,arrival_s,workload,gang,total_steps\na,0,ResNet-50,1,900\nb,60,LSTM,1,900\n"
    page.get_by_label("Policies").fill("max-min fifo")
    large: FilePayload = {"name": "trace.csv", "mimeType": "text/csv", "buffer": b"a" * 2_000_001}
    page.get_by_label("Trace").select_option("a file")
    page.get_by_label("File").set_input_files(large)
    page.get_by_role("button", name="Simulate").click()
    expect(page.get_by_role("alert")).to_contain_text("2000001 bytes: expected at most 2000000")
    page.get_by_label("File").set_input_files(
        {"name": "trace.csv", "mimeType": "text/csv", "buffer": trace.encode()}
    )
    page.get_by_role("button", name="Simulate").click()
    expect(page.get_by_role("region", name="Comparison")).to_contain_text("fifo", timeout=120_000)
    with page.expect_download() as download:
        page.get_by_role("button", name="Download the report").click()
    assert download.value.path().read_text().startswith("<!DOCTYPE html>")
    status, _, body = server.client.raw(
        "POST", "/v1/simulations", {"policies": ["fifo"], "jobs": 2001}
    )
    assert (status, b"jobs" in body) == (422, True)
    long = {"policies": ["max-min", "fifo", "srtf"], "jobs": 2000}
    run = server.client.post("/v1/simulations", long)
    status, _, body = server.client.raw("POST", "/v1/simulations", long)
    assert (status, b"one of your simulations is running" in body) == (409, True)
    page = admin.open("simulate")
    page.get_by_role("button", name="Cancel").click()
    expect(page.get_by_text("cancelled", exact=True)).to_be_visible()
    assert server.client.get("/v1/simulations")[0]["id"] == run["id"]


def test_names_logs_and_metrics_of_a_hostile_tenant_stay_text(
    admin: Visitor, server: LiveServer, jobs: dict[str, str]
) -> None:
    server.client.post("/v1/tokens", {"name": ATTACK, "role": "viewer"})
    page = admin.open(f"jobs/{jobs['hostile']}")
    expect(page.locator("pre.log")).to_contain_text(ATTACK)
    expect(page.locator(".curve").first).to_have_attribute(
        "aria-label", re.compile(re.escape(ATTACK))
    )
    search = urlencode({"tenant": ATTACK, "name": ATTACK})
    expect(admin.open(f"searches?{search}").locator("svg").first).to_be_attached()
    for address in (
        *("jobs?search=onerror", "cluster", "tenants", "tokens", "audit?action=token"),
        *("searches", f"searches?{search}"),
    ):
        expect(admin.open(address).get_by_text(ATTACK).first).to_be_attached()
        assert page.locator("img[src=x]").count() == 0
    assert page.evaluate("window.hacked") is None


def test_a_search_has_a_page_with_its_trials_and_figures(
    admin: Visitor, jobs: dict[str, str]
) -> None:
    page = admin.open("searches")
    expect(page.locator("td.figure").first).to_have_css("display", "table-cell")
    page.get_by_role("link", name="lr", exact=True).click()
    expect(page.get_by_role("heading", name="lr red")).to_be_visible()
    expect(page.get_by_label("Metric")).to_have_value("loss")
    expect(page.get_by_label("Best is the")).to_have_value("least")
    for figure in ("best loss over time", "loss of 1 trials over their steps"):
        expect(page.get_by_role("img", name=figure)).to_be_visible()
    coordinates = page.get_by_role("img", name="hyperparameters and best loss of 1 trials")
    expect(coordinates.locator("polyline.best")).to_have_count(1)
    expect(coordinates.get_by_text("lr", exact=True)).to_be_visible()
    for look in LOOKS:
        admin.look(*look)
        labels = "[...document.querySelectorAll('.plot text')]"
        until(partial(page.evaluate, f"{labels}.every(label => label.getBBox().x >= 0)"))
    rows = page.get_by_role("table").locator("tbody tr")
    expect(rows).to_have_count(2)
    expect(rows.first).to_contain_text("training0.1")
    expect(rows.last).to_contain_text("waiting-0000.01–")
    page.get_by_role("link", name="training").first.click()
    expect(page.get_by_role("heading", name=jobs["training"])).to_be_visible()


def test_a_tenant_sees_its_own_jobs_and_pages_only(
    guest: Visitor, server: LiveServer, jobs: dict[str, str]
) -> None:
    log_in_as(guest, server, role="tenant", tenant="blue")
    page = guest.open("jobs")
    expect(page.get_by_text("No job matches.")).to_be_visible()
    assert page.get_by_role("navigation").inner_text().split() == [
        *("Jobs", "Searches", "Cluster", "Timeline", "Tenants", "Speeds", "Submit", "Simulate")
    ]
    assert page.evaluate("fetch('/v1/searches').then(answer => answer.status)") == 401
    expect(guest.open("searches").get_by_text("No search yet")).to_be_visible()
    hidden = guest.open("searches?tenant=red&name=lr").get_by_role("alert")
    expect(hidden).to_contain_text("no search 'lr' of tenant 'red'")
    page = guest.open("cluster")
    expect(page.get_by_text("other tenants")).to_be_visible()
    assert "red" not in page.locator("main").inner_text()
    assert page.locator(".square[href]").count() == 0
    page = guest.open("timeline")
    expect(page.get_by_text("other tenants")).to_be_visible()
    expect(page.get_by_text("No job that you may see")).to_be_visible()
    assert "red" not in page.locator("main").inner_text()
    page = guest.open("audit")
    expect(page.get_by_role("heading", name="Not found")).to_be_visible()
    page.evaluate("address => { location.hash = address; }", f"#/jobs/{jobs['training']}")
    expect(page.get_by_role("alert")).to_contain_text("no job")
    guest.log_out()
    assert guest.cookies() == []
    log_in_as(guest, server, role="viewer")
    page = guest.open(f"jobs/{jobs['training']}")
    expect(page.get_by_text("Progress")).to_be_visible()
    assert page.get_by_role("button", name="Cancel").count() == 0
    guest.log_out()
    log_in_as(guest, server, role="viewer", scopes=["jobs:read"])
    expect(guest.open("speeds").get_by_text("Not permitted").first).to_be_visible()


def test_a_page_tells_that_it_is_stale_until_the_server_is_back(
    admin: Visitor, server: LiveServer
) -> None:
    page = admin.open("jobs?search=after-restart")
    server.stop()
    expect(page.get_by_text("these data may be outdated")).to_be_visible()
    server.start()
    expect(page.get_by_text("these data may be outdated")).to_be_hidden()
    server.client.submit(["true"], tenant="red", workload="small", name="after-restart")
    expect(page.get_by_role("cell", name="after-restart")).to_be_visible()


def test_the_timeline_hatches_the_rows_of_a_node_that_is_down(
    admin: Visitor, server: LiveServer
) -> None:
    page = admin.open("timeline")
    page.get_by_label("Span").select_option("1 minute")
    assert page.get_by_text("node down", exact=True).count() == 0
    device = server.client.get("/v1/timeline")["devices"][0]
    server.client.post(f"/v1/nodes/{device['node']}/drain")
    expect(page.get_by_text("node down", exact=True)).to_be_visible()
    chart = page.get_by_role("application")
    box = chart.bounding_box()
    assert box is not None
    chart.hover(position={"x": box["width"] - 3, "y": 30})
    expect(page.locator(".hint")).to_contain_text(f"{device['node']}, device 0")
    expect(page.locator(".hint")).to_contain_text("node down")
    server.client.post(f"/v1/nodes/{device['node']}/return")
    shown = server.client.get("/v1/timeline")
    assert shown["outages"]["node"] == [device["node"]]
    (began,), (ended,) = shown["outages"]["begin"], shown["outages"]["end"]
    assert shown["begin"] < began < ended <= shown["end"]


def test_the_cluster_may_shrink_to_one_node(admin: Visitor, server: LiveServer) -> None:
    page = admin.open("cluster")
    for node in server.client.get("/v1/nodes")[1:]:
        server.client.post(f"/v1/nodes/{node['id']}/drain")
        server.client.ask("DELETE", f"/v1/nodes/{node['id']}")
    expect(page.locator(".node")).to_have_count(1)
    expect(page.get_by_text("1 node", exact=True)).to_be_visible()
    expect(admin.open("timeline").get_by_role("application")).to_be_visible()
