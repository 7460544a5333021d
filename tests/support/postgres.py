"""Private PostgreSQL server in a temporary directory, for tests that restart or kill it."""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import sqlalchemy as sa

_PLACES = (
    *sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True),
    Path("/usr/local/bin"),
)
_USER = "postgres"


def missing() -> str:
    """Return the reason why PostgreSQL cannot be started here, or an empty string."""
    if _tools() is None:
        return "PostgreSQL's server is not installed"
    try:
        import psycopg  # noqa: F401, PLC0415  # tests only whether it is installed
    except ImportError:
        return "psycopg is not installed"
    return ""


class Postgres:
    """A server on a private socket and, with a port, on the loopback address."""

    def __init__(self, port: int | None = None) -> None:
        tools = _tools()
        assert tools is not None, missing()
        self._tools = tools
        # Not the test's directory, which only its user may enter: it refuses to run as root.
        self._home = Path(tempfile.mkdtemp(prefix="fairlead-postgres-"))
        self._as_user: list[str] = []
        self._port = port
        if os.getuid() == 0:
            shutil.chown(self._home, _USER)
            self._as_user = ["setpriv", f"--reuid={_USER}", f"--regid={_USER}", "--clear-groups"]
        data = str(self._home / "data")
        self._run("initdb", "-D", data, "-A", "trust", "-U", "fairlead", "--no-sync")
        self.start()

    def start(self) -> None:
        """Start the server and wait until it answers."""
        address = "''" if self._port is None else f"127.0.0.1 -c port={self._port}"
        options = f"-k {self._home} -c listen_addresses={address}"
        log = str(self._home / "log")
        self._run(
            "pg_ctl", "-D", str(self._home / "data"), "-o", options, "-w", "-l", log, "start"
        )

    def kill(self) -> None:
        """Kill all of its processes at once, as a crash of the machine would."""
        first = int((self._home / "data/postmaster.pid").read_text().splitlines()[0])
        for pid in (first, *_children(first)):
            os.kill(pid, signal.SIGKILL)
        while _children(first) or Path(f"/proc/{first}/environ").exists():
            time.sleep(0.01)

    def restart(self) -> None:
        """Restart the server in fast mode, which closes all connections."""
        self._run("pg_ctl", "-D", str(self._home / "data"), "-m", "fast", "-w", "restart")

    def stop(self) -> None:
        """Stop the server and remove its data."""
        self._run("pg_ctl", "-D", str(self._home / "data"), "-m", "immediate", "stop")
        shutil.rmtree(self._home)

    def database(self) -> str:
        """Create an empty database; return its URL."""
        name = f"t{time.monotonic_ns()}"
        admin = sa.create_engine(self._address("postgres"), isolation_level="AUTOCOMMIT")
        with admin.connect() as connection:
            connection.execute(sa.text(f"CREATE DATABASE {name}"))
        admin.dispose()
        return self._address(name)

    def database_with_password(self, password: str) -> str:
        """Create a database whose owner needs a password; return its URL without that."""
        owner = f"u{time.monotonic_ns()}"
        url = sa.make_url(self.database())
        rules = self._home / "data/pg_hba.conf"
        rules.write_text(f"local all {owner} scram-sha-256\n{rules.read_text()}")
        admin = sa.create_engine(self._address("postgres"), isolation_level="AUTOCOMMIT")
        with admin.connect() as connection:
            connection.execute(sa.text(f"CREATE ROLE {owner} LOGIN PASSWORD '{password}'"))
            connection.execute(sa.text(f"ALTER DATABASE {url.database} OWNER TO {owner}"))
            connection.execute(sa.text("SELECT pg_reload_conf()"))
        admin.dispose()
        return url.set(username=owner).render_as_string(hide_password=False)

    def _address(self, name: str) -> str:
        if self._port is None:
            return f"postgresql+psycopg://fairlead@/{name}?host={self._home}"
        return f"postgresql+psycopg://fairlead@127.0.0.1:{self._port}/{name}"

    def _run(self, tool: str, *arguments: str) -> None:
        # The daemons must not inherit our pipes, or we would wait for them.
        with (self._home / "output").open("w") as output:
            subprocess.run(
                [*self._as_user, str(self._tools / tool), *arguments],
                check=True,
                stdout=output,
                stderr=output,
                cwd=self._home,
            )


def _tools() -> Path | None:
    return next((place for place in _PLACES if (place / "initdb").exists()), None)


def _children(pid: int) -> list[int]:
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii")
    except FileNotFoundError:
        return []
    return [int(child) for child in text.split()]
