"""A real server restarted with another policy, round length or speeds table."""

import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.e2e.support.live_server import SPEEDS, LiveServer, json_output
from tests.e2e.support.trained_line import check_result

from fairlead import failpoints
from fairlead.client import Client, ServerError

pytestmark = pytest.mark.slow

_STEPS = 600


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LiveServer]:
    made = LiveServer(tmp_path, devices="v100=1,k80=2")
    yield made
    made.clean_up()


def submit(server: LiveServer, count: int, steps: int) -> list[str]:
    train = str(server.root / "train.py")
    ids = []
    for number in range(count):
        job = server.client.post(
            "/v1/jobs",
            {
                "command": [sys.executable, train, str(steps), str(server.root / f"out{number}")],
                "workload": ("big", "small")[number % 2],
                "steps": steps,
            },
        )
        ids.append(job["id"])
    return ids


def progress(server: LiveServer, ids: list[str]) -> None:
    """Wait until the jobs together have made 40 further steps, or all steps."""
    most = _STEPS * len(ids)
    before = sum(server.client.job(job)["steps_done"] for job in ids)
    until = time.monotonic() + 120
    while sum(server.client.job(job)["steps_done"] for job in ids) < min(before + 40, most):
        assert time.monotonic() < until, "no progress"
        time.sleep(0.1)


def test_jobs_continue_when_the_policy_changes_live_and_at_starts(
    server: LiveServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    crashes = server.root / "crashes"
    crashes.mkdir()
    monkeypatch.setenv(failpoints.VARIABLE, str(crashes))
    server.extra = ("--policy", "gandiva-fair")
    server.start()
    ids = submit(server, 4, _STEPS)
    progress(server, ids)
    # The server dies before or after a live change is stored: all of it holds, or nothing.
    for point, policy in (("before", "gandiva-fair"), ("after", "max-min")):
        (crashes / f"server.policy.{point}").touch()
        with pytest.raises(ServerError):
            server.client.ask("PUT", "/v1/policy", {"policy": "max-min", "round_s": 3.0})
        assert server.process is not None
        server.process.wait(60)
        server.start()
        assert server.client.get("/v1/policy")["policy"] == policy
    progress(server, ids)
    shown = json_output(server, "policy", "set", "gandiva")
    assert (shown["policy"], shown["round_s"], shown["set_by"]) == ("gandiva", 3.0, "live")
    progress(server, ids)
    _refuse(server)
    server.kill()
    server.extra = ("--policy", "hadar")
    server.start()
    about = server.client.get("/v1/about")
    assert (about["policy"], about["round_s"]) == ("hadar", 2.0), "the settings overrule it"
    for number, job_id in enumerate(ids):
        job = server.client.wait(job_id, timeout_s=240)
        assert (job["state"], job["steps_done"]) == ("finished", _STEPS)
        check_result(server.root / f"out{number}.0", _STEPS)
    changes = server.client.get("/v1/audit", action="policy")
    assert [change["changes"]["policy"] for change in changes] == [
        {"old": "max-min", "new": "gandiva"},
        {"old": "gandiva-fair", "new": "max-min"},
    ]
    csv = server.cli("audit-trail", "--action", "policy", "--author", "admin", "--csv").stdout
    assert csv.splitlines()[0] == "entry,time,author,role,actor,action,subject,detail,changes"
    assert len(csv.splitlines()) == 3
    for absent in ({"author": "alice"}, {"until": changes[-1]["at"]}, {"subject": "fifo"}):
        assert server.client.get("/v1/audit", action="policy", **absent) == []
    assert len(server.client.get("/v1/audit", action="policy", since=changes[0]["at"])) == 1


def _refuse(server: LiveServer) -> None:
    """Require that changes are refused: one strands a job, one has no policy, one no admin."""
    (job,) = submit(server, 1, 3000)
    server.client.post(f"/v1/jobs/{job}/suspend")
    only_small = "\n".join(line for line in SPEEDS.splitlines() if "big" not in line)
    impossible = server.root / "impossible.csv"
    impossible.write_text(f"{only_small}\nbig,1,v100,,,0,\nbig,1,k80,,,0,\n")
    refused = server.cli("policy", "set", "fifo", "--speeds", impossible)
    assert refused.returncode == 1
    assert "could never run: job 'j" in refused.stderr
    server.client.post(f"/v1/jobs/{job}/cancel")
    with pytest.raises(ServerError, match="'max-min'"):
        server.client.ask("PUT", "/v1/policy", {"policy": "max-mn"})
    token = server.client.post("/v1/tokens", {"name": "alice", "tenant": "default"})["token"]
    with closing(Client(f"http://127.0.0.1:{server.port}", token)) as tenant:
        assert tenant.raw("PUT", "/v1/policy", {"policy": "fifo"})[0] == 403
        seen = tenant.get("/v1/policy")
    assert (seen["policy"], seen["changed_by"]) == ("gandiva", None)


def test_a_speeds_table_on_which_an_unfinished_job_cannot_run_is_refused(
    server: LiveServer,
) -> None:
    server.start()
    (job_id,) = submit(server, 1, 3000)
    server.kill()
    speeds = server.root / "speeds.csv"
    speeds.write_text(SPEEDS.replace(",,,100,", ",,,0,").replace(",,,25,", ",,,0,"))
    server.launch()
    assert server.process is not None
    assert server.process.wait(90) == 2
    message = (server.root / "server.log").read_text().splitlines()[-1]
    assert "speed 0 on v100, k80 for 'big'" in message
    assert "cancel" in message
    speeds.write_text(SPEEDS)
    server.start()
    assert server.client.job(job_id)["state"] in ("queued", "running")
    server.client.post(f"/v1/jobs/{job_id}/cancel")
