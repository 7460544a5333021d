"""Packed and elastic jobs on a live cluster: packed by measurement or table, grown, shrunk."""

import json
import sys
import time
from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path

from tests.e2e.support.live_server import LiveServer, json_output

from fairlead.submitted_job import SubmittedJob

_HEADER = "workload,gang,accelerator,placement,partner,steps_per_s,partner_steps_per_s\n"
BELIEVED = """light,1,v100,,,100,
light,1,v100,,light,70,70
heavy,1,v100,,,20,
heavy,1,v100,,heavy,15,15
steady,1,v100,,,20,
steady,1,v100,,steady,15,15
elastic,1,k80,,,5,
elastic,2,k80,,,20,
"""
TRUE = BELIEVED.replace("heavy,15,15", "heavy,7,7")
TRAIN = """
import json, sys
from fairlead import job

run, seen = job.attach(), {"steps": []}
run.register(seen=seen)
for i in run.steps(range(int(sys.argv[1]))):
    seen["steps"].append(i)
    run.report(utilization=0.4, memory_gib=2.0)
with open(sys.argv[2], "w") as file:
    json.dump(seen, file)
"""
ELASTIC = """
import json, os, sys
from itertools import count
from fairlead import job

run, seen = job.attach(), {"steps": [], "ranks": [], "parts": []}
run.register(seen=seen)
for i in run.steps(count()):
    seen["steps"].append(i)
    seen["ranks"].append(run.world_size)
    seen["parts"].append(run.batch_size(5))
    if os.path.exists(sys.argv[1]):
        break
with open(sys.argv[2], "w") as file:
    json.dump(seen, file)
"""
STEPS = 2000
_DEADLINE_S = 240.0


def test_jobs_are_packed_measured_and_separated_again_and_end_apart(tmp_path: Path) -> None:
    server = LiveServer(tmp_path, devices="v100=1,k80=2", round_s=4.0)
    (tmp_path / "speeds.csv").write_text(_HEADER + BELIEVED)
    (tmp_path / "true.csv").write_text(_HEADER + TRUE)
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "elastic.py").write_text(ELASTIC)
    policy = ("--policy", "gandiva:grow-after-s=1")
    server.extra = (*policy, "--emulated-speeds", str(tmp_path / "true.csv"))
    try:
        server.start()
        _elastic_job_grows_on_idle_devices_and_shrinks_for_another_tenant(server)
        _gandiva_packs_by_measurements_alone(server)
        assert json_output(server, "policy", "set", "max-min:packed")["policy"] == "max-min:packed"
        _pair_that_does_not_pay_is_undone(server)
        _killed_job_leaves_its_partner_alone(server)
    finally:
        server.clean_up()


def _elastic_job_grows_on_idle_devices_and_shrinks_for_another_tenant(server: LiveServer) -> None:
    """Change the gang from one device to two and back; the job must make every step once."""
    enough, out = server.root / "enough", server.root / "elastic"
    client, command = server.client, [sys.executable, str(server.root / "elastic.py")]
    command += [str(enough), str(out)]
    k80 = {"workload": "elastic", "accelerators": ["k80"]}
    elastic = str(client.submit(command, min_gang=1, max_gang=2, **k80)["id"])
    (grown,) = _until(server, [elastic], lambda jobs: jobs[0]["devices"] == 2)
    assert (grown["gang"], grown["min_gang"], grown["max_gang"]) == (1, 1, 2)
    (reason,) = client.get(f"/v1/jobs/{elastic}/explain")["text"]
    assert reason.startswith("It holds 2 of 1 to 2 devices: it grew beyond its gang of 1, since")
    _until(server, [elastic], lambda jobs: jobs[0]["steps_done"] > grown["steps_done"])
    command[-2:] = [str(server.root / "never"), "unused"]
    other = str(client.submit(command, tenant="other", **k80)["id"])
    both = [elastic, other]
    shrunk, _ = _until(server, both, lambda jobs: [job["devices"] for job in jobs] == [1, 1])
    _until(server, both, lambda jobs: jobs[0]["steps_done"] > shrunk["steps_done"])
    enough.touch()
    assert client.wait(elastic, timeout_s=_DEADLINE_S)["state"] == "finished"
    assert server.cli("cancel", other).returncode == 0
    seen = json.loads(out.read_text())
    assert seen["steps"] == list(range(len(seen["steps"])))
    sizes = [size for size, _ in groupby(seen["ranks"])]
    assert sizes[0] == sizes[-1] == 1
    assert 2 in sizes
    assert seen["parts"] == [5 if size == 1 else 3 for size in seen["ranks"]]
    leases = client.get(f"/v1/jobs/{elastic}/leases")["ended"]
    assert {lease["accelerators"]["k80"] for lease in leases} == {1, 2}


def _gandiva_packs_by_measurements_alone(server: LiveServer) -> None:
    """Pack two jobs in overload; both must make every step exactly once."""
    both = [_submit(server, "light", STEPS, name) for name in ("one", "two")]
    # They share the device long enough to measure the slowdown.
    _until(server, both, lambda jobs: _share(jobs) and 0 < (jobs[0]["steps_per_s"] or 0) < 85)
    jobs = _until(server, both, lambda jobs: {job["state"] for job in jobs} == {"finished"})
    assert [job["steps_done"] for job in jobs] == [STEPS, STEPS]
    for name in ("one", "two"):
        steps = json.loads((server.root / name).read_text())["steps"]
        assert steps == list(range(STEPS))


def _pair_that_does_not_pay_is_undone(server: LiveServer) -> None:
    """Pack by the table, measure, and separate: 7 of 20 steps per second each do not pay."""
    both = [_submit(server, "heavy", 10**6, name) for name in ("three", "four")]
    _until(server, both, _share)
    _until(server, both, lambda jobs: not _share(jobs))
    for job in both:
        assert server.cli("cancel", job).returncode == 0
    listed = json.loads(server.cli("speeds", "pairs", "--json").stdout)
    pairs = [row for row in listed if row["workload"] == "heavy"]
    assert [row["partner"] for row in pairs] == ["heavy"]
    assert 0 < pairs[0]["steps_per_s"] <= pairs[0]["alone_steps_per_s"] / 2


def _killed_job_leaves_its_partner_alone(server: LiveServer) -> None:
    both = one, two = [_submit(server, "steady", 10**6, name) for name in ("five", "six")]
    jobs = _until(server, both, _share)
    assert [job["partners"] for job in jobs] == [1, 1]
    assert f"It shares its devices with {two} now." in json_output(server, "explain", one)["text"]
    assert 'fairlead_devices_shared{accelerator="v100"} 1.0' in _metrics(server)
    assert server.cli("cancel", "--force", one).returncode == 0
    alone = _until(server, both, lambda jobs: not jobs[1]["partners"])[1]
    later = _until(server, both, lambda jobs: jobs[1]["steps_done"] > alone["steps_done"])[1]
    assert (later["leases"], later["failures"]) == (alone["leases"], 0)
    assert server.cli("cancel", two).returncode == 0


def _share(jobs: list[SubmittedJob]) -> bool:
    return all(
        job["shares_with"] == [other["id"]]
        for job, other in zip(jobs, reversed(jobs), strict=True)
    )


def _submit(server: LiveServer, workload: str, steps: int, out: str) -> str:
    command = [sys.executable, str(server.root / "train.py"), str(steps), str(server.root / out)]
    job = server.client.submit(command, workload=workload, steps=steps, accelerators=["v100"])
    return str(job["id"])


def _metrics(server: LiveServer) -> str:
    return server.client.text("GET", "/metrics")[1].decode()


def _until(
    server: LiveServer, ids: Sequence[str], reached: Callable[[list[SubmittedJob]], bool]
) -> list[SubmittedJob]:
    """Return the jobs once they have reached a state."""
    until = time.monotonic() + _DEADLINE_S
    while time.monotonic() < until:
        jobs = [server.client.job(job) for job in ids]
        if reached(jobs):
            return jobs
        time.sleep(0.1)
    raise AssertionError(jobs)
