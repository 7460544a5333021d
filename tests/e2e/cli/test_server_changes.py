"""Client commands against a server of their own: nodes, doctor, restarts."""

import time

import pytest
from tests.e2e.support.live_server import LiveServer, json_output
from tests.support.waiting import until

from fairlead.client import ServerError


def test_a_job_can_be_shown_while_all_nodes_are_down(own_server: LiveServer) -> None:
    own_server.start()
    client = own_server.client
    assert client.get("/v1/instance")["jobs"] == []
    job = client.submit(["sleep", "60"], workload="big")["id"]
    assert client.get("/v1/instance")["jobs"][0]["id"] == job
    for node in client.get("/v1/nodes"):
        client.post(f"/v1/nodes/{node['id']}/drain")
    assert client.raw("GET", f"/v1/jobs/{job}/explain")[0] in (200, 409)
    assert client.raw("GET", "/v1/instance")[0] == 409


def test_a_cordoned_node_keeps_its_job_and_gets_no_new_one(own_server: LiveServer) -> None:
    own_server.round_s = 1.0
    own_server.start()
    client = own_server.client

    def running() -> dict[str, str]:
        return {job["id"]: job["accelerator"] for job in client.get("/v1/jobs", state="running")}

    first = client.submit(["sleep", "600"], workload="big", accelerators=["v100"])["id"]
    until(lambda: running() == {first: "v100"})
    assert own_server.cli("nodes", "cordon", "v100-0").stdout == "v100-0: cordoned\n"
    others = [client.submit(["sleep", "600"], workload="big", weight=9)["id"] for _ in range(3)]
    until(lambda: sorted(running().values()) == ["k80", "v100"], "no other job runs")
    time.sleep(3.5)  # three rounds
    shown = client.job(first)
    assert (shown["state"], shown["leases"]) == ("running", 1)
    assert sorted(running().values()) == ["k80", "v100"]
    own_server.kill()
    own_server.start()
    assert json_output(own_server, "nodes")[0]["cordoned"]
    client.post(f"/v1/jobs/{first}/cancel")
    until(lambda: list(running().values()) == ["k80"])
    time.sleep(1.5)
    assert list(running().values()) == ["k80"]
    assert own_server.cli("nodes", "return", "v100-0").stdout == "v100-0: up\n"
    until(lambda: sorted(running().values()) == ["k80", "v100"])
    for job in others:
        client.post(f"/v1/jobs/{job}/cancel")


# -- settings, signals, logs, limits --------------------------------------------------------------


def test_a_gang_that_no_accelerator_holds_alone_runs_where_gangs_are_mixed(
    own_server: LiveServer,
) -> None:
    own_server.extra = ("--policy", "hadar")
    own_server.start()
    client = own_server.client
    job = client.submit(["true"], workload="big", gang=2)["id"]
    assert client.wait(job, timeout_s=90)["state"] == "finished"


def test_a_cluster_grows_between_restarts_and_its_nodes_are_used(own_server: LiveServer) -> None:
    own_server.devices = "v100=1"
    own_server.start()
    client = own_server.client
    first, second = (client.submit(["sleep", "600"], workload="big")["id"] for _ in range(2))
    until(lambda: client.job(first)["state"] == "running")
    own_server.kill()
    own_server.devices = "k80=1,v100=1"  # in whatever order
    own_server.start()

    def used() -> set[str]:
        return {client.job(one)["accelerator"] for one in (first, second)}

    until(lambda: used() == {"v100", "k80"})
    assert [one["id"] for one in json_output(own_server, "nodes")] == ["v100-0", "k80-0"]
    assert own_server.cli("nodes", "drain", "k80-0").returncode == 0
    assert own_server.cli("nodes", "remove", "k80-0", "--yes").returncode == 0
    assert own_server.cli("nodes", "return", "k80-0").returncode != 0
    own_server.kill()
    own_server.start()
    assert [one["id"] for one in json_output(own_server, "nodes")] == ["v100-0"]
    with pytest.raises(ServerError, match="may use no accelerator of the cluster"):
        client.submit(["sleep", "1"], workload="big", accelerators=["k80"])
