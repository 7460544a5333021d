"""The API conforms to its OpenAPI schema for generated requests."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.e2e.support.live_server import LiveServer

EXAMPLES = os.environ.get("FAIRLEAD_SCHEMA_EXAMPLES", "15")
"""examples per route; 300 make more than 5,000 cases"""
CHECKS = "not_a_server_error,status_code_conformance,response_schema_conformance"


@pytest.mark.slow
def test_no_request_breaks_the_server_or_the_schema(tmp_path: Path) -> None:
    tool = shutil.which("schemathesis", path=str(Path(sys.executable).parent))
    if tool is None:
        pytest.skip("schemathesis is not installed")
    server = LiveServer(tmp_path, round_s=30.0)
    server.start()
    try:
        server.client.submit(["sleep", "60"], workload="small")
        token = (server.data / "admin.token").read_text()
        # The event stream is endless, and revoking the token would end the test.
        excluded = ["--exclude-path", "/v1/events", "--exclude-path", "/v1/tokens/{token_id}"]
        options = ["-H", f"Authorization: Bearer {token}", "-n", EXAMPLES, "--seed", "1"]
        options += ["--checks", f"{CHECKS},content_type_conformance"]
        options += ["--phases", "coverage,fuzzing", "--generation-database", "none"]
        completed = subprocess.run(
            [tool, "run", f"http://127.0.0.1:{server.port}/openapi.json", *excluded, *options],
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
            timeout=3600,
        )
        summary = re.search(r"(\d+) generated, (\d+) passed", completed.stdout)
        assert completed.returncode == 0, completed.stdout[-4000:]
        assert summary is not None
        assert int(summary[1]) == int(summary[2]) > 500
        assert server.client.raw("GET", "/readyz")[0] == 200
    finally:
        server.clean_up()
