"""``fairlead ready``: for scripts that start a server and use it."""

import signal
import subprocess
import sys

from tests.e2e.support.live_server import LiveServer, json_output
from tests.support.waiting import until


def test_ready_waits_for_a_server_that_starts(own_server: LiveServer) -> None:
    missing = own_server.cli("ready", "--timeout", "0")
    assert missing.returncode == 1
    assert missing.stderr.startswith("fairlead: no server is known: ")
    waiting = subprocess.Popen(
        [sys.executable, "-m", "fairlead", "ready", "--timeout", "120"],
        env=own_server.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert waiting.stderr is not None
    assert waiting.stderr.readline() == "waiting for the server\n"
    own_server.start()
    out, err = waiting.communicate(timeout=120)
    assert (waiting.returncode, out, err) == (0, f"http://127.0.0.1:{own_server.port}\n", "")
    own_server.stop()
    gone = own_server.cli("ready", "--timeout", "0")
    assert "does not answer" in gone.stderr


def test_a_profile_that_is_terminated_cancels_its_job(own_server: LiveServer) -> None:
    own_server.devices = "v100=1"
    own_server.start()
    client = own_server.client
    busy = client.submit(["sleep", "600"], workload="small", preempt="no")
    until(lambda: client.job(busy.id).state == "running")
    command = [sys.executable, "-m", "fairlead", "profile", "--workload", "big"]
    command += ["--out", str(own_server.root / "out.csv"), str(own_server.root / "train.py")]
    with subprocess.Popen(command, env=own_server.environment, stderr=subprocess.PIPE) as profile:
        assert profile.stderr is not None
        assert b"queued" in profile.stderr.readline()
        profile.terminate()
        assert profile.wait(60) == 128 + signal.SIGTERM
    states = {job.name: job.state for job in client.jobs()}
    assert states["profile on v100"] == "cancelled"
    doctor = json_output(own_server, "doctor", "--data", own_server.data)
    devices = [each for each in doctor["findings"] if each["what"] == "devices"]
    assert [each["level"] for each in devices] == ["ok"]
    assert devices[0]["found"].startswith("v100=1 emulated")
    client.cancel(busy.id, force=True)
