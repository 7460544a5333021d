"""``fairlead ready``: for scripts that start a server and use it."""

import subprocess
import sys

from tests.e2e.support.live_server import LiveServer


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
