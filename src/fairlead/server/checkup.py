"""Whether a machine is fit to run Fairlead: one finding for each thing that could be wrong."""

import os
import shutil
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from email.utils import parsedate_to_datetime
from pathlib import Path

from fairlead import __version__
from fairlead.client import Client, ServerError, UntrustedError
from fairlead.compiled import compiled
from fairlead.engines.plugin import engine_plugin
from fairlead.engines.shared.checkup.findings import MAX_CLOCK_SKEW_S, Finding, Level
from fairlead.model.errors import FairleadError
from fairlead.server.config.settings import ServeSettings, effective
from fairlead.server.config.validation import verify
from fairlead.store.schema import schema_state

_GIB = 1 << 30
_LEAST_FREE_GIB, _LOW_FREE_GIB = 0.5, 5.0

Check = Callable[[], Iterator[Finding]]


def run_checkup(
    data: Path | None = None,
    config: Path | None = None,
    python: str | None = None,
    engine: str | None = None,
) -> list[Finding]:
    """Return a finding for each check; one that cannot be made is wrong itself."""
    flags = {"data": data, "engine": engine}
    try:
        known = effective(flags, os.environ, config)
        verify(known)
    except FairleadError as error:
        fix = "correct it; `fairlead config check` shows all settings"
        return [_version(), Finding("configuration", "wrong", str(error), fix)]
    where = f"from {known.file}" if known.file else "no file, all from defaults and environment"
    found = [_version(), Finding("configuration", "ok", where)]
    settings = known.settings
    plugin, options = engine_plugin(settings.engine)
    site = replace(settings.site, python=python or sys.executable)
    checks: tuple[tuple[str, Check], ...] = (
        ("data directory", lambda: _data(settings.data)),
        ("disk", lambda: _disk(settings.data)),
        ("database", lambda: _database(settings)),
        ("clock", lambda: _clock(settings)),
        ("engine", lambda: plugin.check(site, options)),
        ("server", lambda: _server(settings)),
    )
    for name, check in checks:
        try:
            found += check()
        except (OSError, FairleadError, subprocess.SubprocessError) as error:
            found.append(Finding(name, "wrong", f"it could not be checked: {error}"))
    return found


def _version() -> Finding:
    python = ".".join(map(str, sys.version_info[:3]))
    told = f"Fairlead {__version__} on Python {python}"
    if compiled is not None:
        return Finding("version", "ok", f"{told}, with what every round does compiled")
    fix = "faster with a C compiler and Python's headers at installation; nothing else changes"
    return Finding("version", "ok", f"{told}, nothing compiled", fix)


def _data(data: Path) -> Iterator[Finding]:
    what = "data directory"
    if not data.exists():
        parent = next(p for p in data.parents if p.exists())
        if os.access(parent, os.W_OK | os.X_OK):
            yield Finding(what, "ok", f"{data} is not there yet; the first start makes it")
        else:
            fix = "give --data or FAIRLEAD_DATA a directory of yours"
            yield Finding(what, "wrong", f"{data} cannot be made in {parent}", fix)
        return
    if not (data.is_dir() and os.access(data, os.R_OK | os.W_OK | os.X_OK)):
        yield Finding(what, "wrong", f"{data} is not writable", f"chown -R $USER {data}")
        return
    open_to_others = [
        path
        for path in (data, data / "admin.token", data / "server.json", data / "login.json")
        if path.exists() and stat.S_IMODE(path.stat().st_mode) & 0o077
    ]
    for path in open_to_others:
        mode = "700" if path.is_dir() else "600"
        said = f"{path} can be read by others"
        yield Finding(what, "wrong", said, f"chmod {mode} {path}")
    if not open_to_others:
        yield Finding(what, "ok", f"{data} is writable and private")


def _disk(data: Path) -> Iterator[Finding]:
    at = next(p for p in (data, *data.parents) if p.exists())
    usage = shutil.disk_usage(at)
    free = usage.free / _GIB
    level: Level = (
        "wrong" if free < _LEAST_FREE_GIB else "warning" if free < _LOW_FREE_GIB else "ok"
    )
    fix = "" if level == "ok" else "free some, or move the data: checkpoints need room"
    yield Finding("disk", level, f"{free:.1f} GiB free at {at}", fix)


def _database(settings: ServeSettings) -> Iterator[Finding]:
    what = "database"
    if settings.database is None and not (settings.data / "fairlead.db").exists():
        yield Finding(what, "ok", "SQLite, made by the first start")
        return
    has, newest = schema_state(settings.store_url)
    if has == newest:
        yield Finding(what, "ok", f"reachable, with the schema of this version ({has})")
    elif has is None:
        yield Finding(what, "ok", "reachable and empty; the first start sets it up")
    else:
        said = f"its schema is {has}, this version has {newest}"
        fix = "start `fairlead serve` once to migrate it, or use the version that wrote it"
        yield Finding(what, "warning", said, fix)


def _clock(settings: ServeSettings) -> Iterator[Finding]:
    now = time.time()
    for path in settings.data.glob("fairlead.db*"):
        ahead = path.stat().st_mtime - now
        if ahead > MAX_CLOCK_SKEW_S:
            said = f"{path.name} was written {ahead:.0f} s in the future: the clock went back"
            fix = "let NTP set the clock (timedatectl set-ntp true)"
            yield Finding("clock", "warning", said, fix)
            return
    yield Finding("clock", "ok", time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(now)))


def _server(settings: ServeSettings) -> Iterator[Finding]:
    try:
        client = Client.found(settings.data)
    except ServerError:
        yield from _port(settings)
        return
    try:
        status, headers, _ = client.raw("GET", "/readyz")
        about = client.get("/v1/about")
    except UntrustedError as error:
        yield Finding("server", "wrong", error.problem, error.fix)
        return
    except ServerError as error:
        if _port_in_use(settings):
            yield Finding("server", "wrong", str(error), "see its log, or start it again")
            return
        fix = "start it with `fairlead serve`; jobs that run go on meanwhile"
        yield Finding("server", "warning", f"none answers ({error})", fix)
        return
    finally:
        client.close()
    if status != 200:
        fix = "start it again: it goes on from what is written"
        yield Finding("server", "wrong", "it has stopped deciding", fix)
        return
    skew = abs(time.time() - parsedate_to_datetime(headers["date"]).timestamp())
    if skew > MAX_CLOCK_SKEW_S:
        said = f"the server's clock differs by {skew:.0f} s"
        yield Finding("clock", "warning", said, "let NTP set both clocks")
    if about["version"] != __version__:
        said = f"it runs Fairlead {about['version']}, this is {__version__}"
        yield Finding("server", "warning", said, "start it again, or install its version here")
    else:
        yield Finding("server", "ok", f"{about['policy']} decides on {_listed(about['cluster'])}")


def _listed(counts: dict[str, int]) -> str:
    return ", ".join(f"{kind}={count}" for kind, count in counts.items())


def _port(settings: ServeSettings) -> Iterator[Finding]:
    if _port_in_use(settings):
        said = f"port {settings.port} is taken by another program"
        yield Finding("server", "wrong", said, "give --port, or stop the other program")
    else:
        yield Finding("server", "ok", f"none runs; port {settings.port} is free")


def _port_in_use(settings: ServeSettings) -> bool:
    try:
        with socket.create_connection((settings.host, settings.port), timeout=2):
            return True
    except OSError:
        return False
