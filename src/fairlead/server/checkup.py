"""Checkup of a machine and its server, with one finding per possible problem."""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from email.utils import parsedate_to_datetime
from pathlib import Path

from fairlead.client import Client, ServerError, UntrustedCertificateError
from fairlead.compiled import compiled
from fairlead.engines.plugin import engine_plugin
from fairlead.engines.shared.checkup.findings import MAX_CLOCK_SKEW_S, Finding, Level
from fairlead.model.errors import FairleadError, InputError
from fairlead.quarantine import quarantined
from fairlead.registry import GROUPS, broken_plug_ins
from fairlead.server.config.loading import load_settings
from fairlead.server.config.settings import ServeSettings
from fairlead.server.config.validation import verify
from fairlead.server.private_files import require_private_data
from fairlead.store.schema import schema_state
from fairlead.version import __version__

_GIB = 1 << 30
_MIN_FREE_GIB, _LOW_FREE_GIB = 0.5, 5.0
_OTHER_DATA = "set --data or FAIRLEAD_DATA to a writable directory"

Check = Callable[[], Iterator[Finding]]


def run_checkup(
    data: Path | None = None,
    config: Path | None = None,
    python: str | None = None,
    engine: str | None = None,
) -> list[Finding]:
    """Return a finding for each check; a check that cannot be made counts as wrong."""
    flags = {"data": data, "engine": engine}
    try:
        effective = load_settings(flags, os.environ, config)
        verify(effective)
    except FairleadError as error:
        fix = "correct the setting; `fairlead config check` shows all settings"
        wrong = Finding("configuration", "wrong", str(error), fix)
        return [_version(), *_plug_ins(), wrong]
    where = f"from {effective.file}" if effective.file else "from defaults and environment"
    findings = [_version(), *_plug_ins(), Finding("configuration", "ok", where)]
    settings = effective.settings
    plugin, options = engine_plugin(settings.engine)
    emulate = settings.site.emulate or _emulated_devices(settings.data)
    site = replace(settings.site, python=python or sys.executable, emulate=emulate)
    checks: tuple[tuple[str, Check], ...] = (
        ("data directory", lambda: _data(settings.data)),
        ("disk", lambda: _disk(settings.data)),
        ("database", lambda: _database(settings)),
        ("quarantine", lambda: _quarantine(settings.data)),
        ("clock", lambda: _clock(settings)),
        ("engine", lambda: plugin.check(site, options)),
        ("server", lambda: _server(settings)),
    )
    for name, check in checks:
        try:
            findings += check()
        except (OSError, FairleadError, subprocess.SubprocessError) as error:
            findings.append(Finding(name, "wrong", f"cannot be checked: {error}"))
    return findings


def _emulated_devices(data: Path) -> str | None:
    """Return the devices that a running server emulates, if there are any."""
    try:
        about = json.loads((data / "server.json").read_text(encoding="utf-8"))
        emulate: str | None = about.get("emulate")
        if emulate is None or Client(about["url"], "").raw("GET", "/healthz")[0] != 200:
            return None
    except (OSError, ValueError, KeyError, AttributeError, ServerError):
        return None
    return emulate


def _version() -> Finding:
    python = ".".join(map(str, sys.version_info[:3]))
    version = f"Fairlead {__version__} on Python {python}"
    if compiled is not None:
        return Finding("version", "ok", f"{version}, with compiled core")
    fix = "for more speed, install with a C compiler and Python's headers"
    return Finding("version", "ok", f"{version}, without compiled core", fix)


def _data(data: Path) -> Iterator[Finding]:
    what = "data directory"
    if not data.exists():
        parent = next(p for p in data.parents if p.exists())
        if os.access(parent, os.W_OK | os.X_OK):
            yield Finding(what, "ok", f"{data} does not exist yet; the first start creates it")
        else:
            yield _unwritable(f"cannot create {data} in {parent}", parent, _OTHER_DATA)
        return
    if not (data.is_dir() and os.access(data, os.R_OK | os.W_OK | os.X_OK)):
        yield _unwritable(f"{data} is not writable", data, f"chown -R $USER {data}")
        return
    try:
        require_private_data(data)
    except InputError as error:
        yield Finding(what, "wrong", error.problem, error.fix)
        return
    open_to_others = [
        path
        for path in (data, data / "admin.token", data / "server.json", data / "login.json")
        # Tenants' users may pass through the directory to their own files in it.
        if path.exists() and path.stat().st_mode & (0o066 if path.is_dir() else 0o077)
    ]
    for path in open_to_others:
        mode = "700" if path.is_dir() else "600"
        problem = f"{path} is readable by other users"
        yield Finding(what, "wrong", problem, f"chmod {mode} {path}")
    if not open_to_others:
        yield Finding(what, "ok", f"{data} is writable and private")


def _unwritable(problem: str, path: Path, fix: str) -> Finding:
    """Return the finding of a problem; no owner can write to a read-only file system."""
    if os.statvfs(path).f_flag & os.ST_RDONLY:
        mounted_at = next(each for each in (path, *path.parents) if each.is_mount())
        problem += f": the file system at {mounted_at} is read-only"
        fix = f"mount it writable (mount -o remount,rw {mounted_at}), or {_OTHER_DATA}"
    return Finding("data directory", "wrong", problem, fix)


def _disk(data: Path) -> Iterator[Finding]:
    at = next(p for p in (data, *data.parents) if p.exists())
    usage = shutil.disk_usage(at)
    free = usage.free / _GIB
    level: Level = "wrong" if free < _MIN_FREE_GIB else "warning" if free < _LOW_FREE_GIB else "ok"
    fix = "" if level == "ok" else "free space or move the data directory: checkpoints need space"
    yield Finding("disk", level, f"{free:.1f} GiB free at {at}", fix)


def _database(settings: ServeSettings) -> Iterator[Finding]:
    what = "database"
    if settings.database is None and not (settings.data / "fairlead.db").exists():
        yield Finding(what, "ok", "SQLite, created by the first start")
        return
    has, newest = schema_state(settings.store_url)
    if has == newest:
        yield Finding(what, "ok", f"reachable, schema {has} is current")
    elif has is None:
        yield Finding(what, "ok", "reachable and empty; the first start creates the schema")
    else:
        problem = f"schema {has}, but this version uses {newest}"
        fix = "start `fairlead serve` once to migrate, or use the version that wrote the database"
        yield Finding(what, "warning", problem, fix)


def _quarantine(data: Path) -> Iterator[Finding]:
    """Yield a finding for each damaged file or document that a server has moved aside."""
    for path in quarantined(data):
        fix = f"inspect it, restore it from a backup if needed, then remove it: rm -r {path}"
        yield Finding("quarantine", "warning", f"{path} was damaged and moved aside", fix)


def _clock(settings: ServeSettings) -> Iterator[Finding]:
    now = time.time()
    for path in settings.data.glob("fairlead.db*"):
        ahead = path.stat().st_mtime - now
        if ahead > MAX_CLOCK_SKEW_S:
            problem = f"{path.name} was written {ahead:.0f} s in the future: the clock went back"
            fix = "synchronise the clock by NTP (timedatectl set-ntp true)"
            yield Finding("clock", "warning", problem, fix)
            return
    yield Finding("clock", "ok", time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(now)))


def _server(settings: ServeSettings) -> Iterator[Finding]:
    try:
        client = Client.from_environment(settings.data)
    except ServerError:
        yield from _port(settings)
        return
    try:
        status, headers, body = client.raw("GET", "/readyz")
        about = client.get("/v1/about")
    except UntrustedCertificateError as error:
        yield Finding("server", "wrong", error.problem, error.fix)
        return
    except ServerError as error:
        if _port_in_use(settings):
            yield Finding("server", "wrong", str(error), "see the server's log, or restart it")
            return
        fix = "start it with `fairlead serve`; running jobs continue meanwhile"
        yield Finding("server", "warning", f"not running ({error})", fix)
        return
    finally:
        client.close()
    answer = body.decode(errors="replace").strip()
    if status != 200:
        fix = "restart the server: it recovers from the persisted state"
        if answer.startswith("plans fail"):
            fix = "see the server's log; update or change the plug-in, or set another policy"
        yield Finding("server", "wrong", f"the scheduler has stopped: {answer}", fix)
        return
    if answer != "ok":
        fix = "`fairlead jobs` and the server's log name the jobs and the plug-in"
        yield Finding("planning", "warning", answer, fix)
    skew = abs(time.time() - parsedate_to_datetime(headers["date"]).timestamp())
    if skew > MAX_CLOCK_SKEW_S:
        problem = f"the server's clock differs by {skew:.0f} s"
        yield Finding("clock", "warning", problem, "synchronise both clocks by NTP")
    if about["version"] != __version__:
        problem = f"the server runs Fairlead {about['version']}, this is {__version__}"
        fix = "restart the server, or install its version here"
        yield Finding("server", "warning", problem, fix)
    else:
        yield Finding("server", "ok", f"running {about['policy']} on {_listed(about['cluster'])}")


def _plug_ins() -> Iterator[Finding]:
    """Yield the plug-ins of other packages that cannot be used."""
    broken = [each for group in GROUPS for each in broken_plug_ins(group)]
    for each in broken:
        problem = f"{each.plug_in}: entry point {each.plug_in.target!r}: {each.reason}"
        yield Finding("plug-ins", "warning", problem, "update or uninstall the package")
    if not broken:
        yield Finding("plug-ins", "ok", "all policies, mechanisms and engines can be loaded")


def _listed(counts: dict[str, int]) -> str:
    return ", ".join(f"{accelerator}={count}" for accelerator, count in counts.items())


def _port(settings: ServeSettings) -> Iterator[Finding]:
    if _port_in_use(settings):
        problem = f"port {settings.port} is in use by another program"
        yield Finding("server", "wrong", problem, "use another --port, or stop the other program")
    else:
        yield Finding("server", "ok", f"not running; port {settings.port} is free")


def _port_in_use(settings: ServeSettings) -> bool:
    try:
        with socket.create_connection((settings.host, settings.port), timeout=2):
            return True
    except OSError:
        return False
