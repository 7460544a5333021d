"""Self-signed certificates."""

import subprocess
from pathlib import Path


def make_certificate(root: Path, address: str) -> tuple[str, ...]:
    """Make tls.crt and tls.key for a server at this address; return its flags."""
    made = {name: str(root / f"tls.{name}") for name in ("key", "crt")}
    request = f"openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN={address}"
    command = [*request.split(), "-addext", f"subjectAltName=IP:{address}"]
    command += ["-keyout", made["key"], "-out", made["crt"]]
    subprocess.run(command, check=True, capture_output=True)
    return ("--tls-certificate", made["crt"], "--tls-key", made["key"])
