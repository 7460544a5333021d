"""A server with TLS, whose certificate its jobs and clients trust or do not trust."""

import json
import sys
import time

import pytest
from tests.e2e.support.certificates import make_certificate
from tests.e2e.support.live_server import LiveServer

from fairlead.client import Client, UntrustedCertificateError


def submit(server: LiveServer, steps: int) -> str:
    command = [sys.executable, str(server.root / "train.py"), str(steps), str(server.root / "out")]
    made = server.client.submit(command, workload="big", steps=steps, accelerators=["v100"])
    return str(made["id"])


def test_a_job_that_trusts_the_certificate_reports_steps_while_it_runs(
    own_server: LiveServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_server.extra = make_certificate(own_server.root, "127.0.0.1")
    monkeypatch.setenv("SSL_CERT_FILE", str(own_server.root / "tls.crt"))
    own_server.round_s = 2.0
    own_server.start()
    job = submit(own_server, 100_000)
    until = time.monotonic() + 90
    while not (running := own_server.client.job(job))["steps_done"]:
        assert time.monotonic() < until, own_server.cli("logs", job).stdout
        time.sleep(0.05)
    assert running["state"] == "running"
    assert "certificate" not in own_server.cli("logs", job).stdout
    own_server.client.close()


def test_an_untrusted_certificate_is_reported_with_the_remedy(
    own_server: LiveServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_server.extra = make_certificate(own_server.root, "127.0.0.1")
    own_server.round_s = 2.0
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    own_server.launch()  # its jobs do not trust the certificate either
    monkeypatch.setenv("SSL_CERT_FILE", str(own_server.root / "tls.crt"))
    own_server.wait_until_up()
    job = submit(own_server, 150)
    assert own_server.client.wait(job, timeout_s=90)["state"] == "finished"
    (message,) = [
        line for line in own_server.cli("logs", job).stdout.splitlines() if "certificate" in line
    ]
    assert message.startswith("fairlead: no progress is reported: ")
    assert "is not trusted (self" in message
    assert "set SSL_CERT_FILE" in message
    with pytest.raises(
        UntrustedCertificateError, match=r"is not valid for localhost .*; give the server"
    ):
        Client(f"https://localhost:{own_server.port}", "fl_0_0").get("/v1/about")

    monkeypatch.delenv("SSL_CERT_FILE")
    refused = own_server.cli("jobs")
    assert refused.returncode == 1
    assert "is not trusted" in refused.stderr
    assert "set SSL_CERT_FILE" in refused.stderr
    assert "does not answer" not in refused.stderr
    doctor = own_server.cli("doctor", "--json")
    (server,) = [
        finding for finding in json.loads(doctor.stdout)["findings"] if finding["what"] == "server"
    ]
    assert (doctor.returncode, server["level"]) == (1, "wrong")
    assert "is not trusted" in server["found"]
    assert server["fix"].startswith("set SSL_CERT_FILE")
    own_server.client.close()
