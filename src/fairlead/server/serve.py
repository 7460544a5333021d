"""From settings to a running server."""

import asyncio
import contextlib
import json
import os
import secrets
import signal
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import sqlalchemy as sa
import structlog
import uvicorn

from fairlead.data import DEFAULT_SPEEDS
from fairlead.engines.base import Engine
from fairlead.engines.plugin import engine_plugin
from fairlead.files import read_speeds
from fairlead.live.driver import Live, Setting
from fairlead.live.job_spec import JobSpec
from fairlead.live.leases.orders import Environment
from fairlead.model.errors import FairleadError, InputError
from fairlead.model.speeds.table import SpeedTable
from fairlead.server.access.rate_limits import Limits
from fairlead.server.access.tokens import Tokens
from fairlead.server.api.app import make_app
from fairlead.server.api.routes.insights import About
from fairlead.server.config.scheduling import (
    build_scheduling_config,
    load_scheduling_config,
    round_length_s,
)
from fairlead.server.config.settings import ServeSettings
from fairlead.server.logs import set_up
from fairlead.store import Change, Put, Store

log = structlog.get_logger("fairlead.serve")


class AlreadyRunningError(FairleadError):
    """Another scheduler works on this store, or another program has the port."""

    code = "taken"


def serve(settings: ServeSettings) -> None:
    """Run until a signal ends it; jobs go on without the server."""
    set_up(settings.log_format, settings.log_level)
    asyncio.run(_serve(settings))


async def _serve(settings: ServeSettings) -> None:
    store = _open(settings)
    owner = f"{os.uname().nodename}:{os.getpid()}"
    token = store.acquire(owner)
    if token is None and settings.standby_s > 0:
        log.info("server.standby", seconds=settings.standby_s)
        token = store.acquire(owner, wait_s=settings.standby_s)
    if token is None:
        raise AlreadyRunningError(
            f"another scheduler works on {settings.data}; stop it, or give --standby SECONDS"
        )
    door = _bind_socket(settings)
    tokens = _tokens(settings, store, token)
    setting, engine = await _setting(settings, tokens)
    live = Live(store, engine, setting, token)
    await live.start()
    _write_private(settings.data / "server.json", json.dumps({"url": settings.url}))
    log.info("server.started", url=settings.url, policy=settings.policy)
    try:
        await _listen(settings, live, tokens, door)
    finally:
        await live.stop()
        store.close()
        door.close()
        log.info("server.stopped")


def _open(settings: ServeSettings) -> Store:
    """Return the store, made where there is none, or say which setting is at fault."""
    try:
        settings.data.mkdir(parents=True, exist_ok=True, mode=0o700)
        (settings.data / "jobs").mkdir(exist_ok=True, mode=0o700)
    except OSError as error:
        said = f"{settings.data} cannot be made a directory ({error.strerror})"
        raise InputError(said, fix="give another --data", field="data") from None
    try:
        _make_private(settings.store_url)
        return Store(settings.store_url)
    except (sa.exc.DatabaseError, sa.exc.NoSuchModuleError, ImportError) as error:
        why = str(getattr(error, "orig", error)).splitlines()[0]
        fix = "check that it runs and that address, user and password are right"
        raise InputError(f"it cannot be used ({why})", fix=fix, field="database") from None


def _make_private(store_url: str) -> None:
    """Make a new SQLite database so that only its owner can read it: it holds secrets.

    SQLite gives the files beside it the same mode.
    """
    address = sa.make_url(store_url)
    name = address.database or ":memory:"
    if address.get_backend_name() == "sqlite" and not name.startswith((":", "file:")):
        with contextlib.suppress(OSError):  # the store says what is wrong with it
            os.close(os.open(name, os.O_WRONLY | os.O_CREAT, 0o600))


def _bind_socket(settings: ServeSettings) -> socket.socket:
    """Take the address before anything is decided: who cannot be reached must not schedule."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    # asyncio sends answers at once only on sockets that say they are TCP's.
    door = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        door.bind((settings.host, settings.port))
    except OSError as error:
        door.close()
        raise AlreadyRunningError(
            f"it cannot listen on {settings.host}:{settings.port} ({error.strerror}); give another"
            " --port, or stop what listens there"
        ) from None
    return door


async def _listen(
    settings: ServeSettings, live: Live, tokens: Tokens, door: socket.socket
) -> None:
    app = make_app(
        live,
        tokens,
        about=About(settings.policy, settings.mechanism),
        limits=_limits(settings),
        log_all=settings.log_level == "debug",
    )
    config = uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        log_config=None,
        access_log=False,
        ssl_certfile=settings.tls_certificate,
        ssl_keyfile=settings.tls_key,
        timeout_graceful_shutdown=5,
        timeout_keep_alive=30,
    )
    server = _Server(config)
    _stop_on_signals(server, live)
    breaking = asyncio.create_task(live.broken.wait())
    serving = asyncio.create_task(server.serve(sockets=[door]))
    done, _ = await asyncio.wait({breaking, serving}, return_when=asyncio.FIRST_COMPLETED)
    if serving not in done:
        # The store or the driver failed: only a fresh start from what is written is safe.
        os.kill(os.getpid(), signal.SIGKILL)
    breaking.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await breaking
    await serving


class _Server(uvicorn.Server):
    """Leaves signals to us: uvicorn would raise them again before the store is closed."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _stop_on_signals(server: uvicorn.Server, live: Live) -> None:
    """Stop accepting and finish requests on the first signal; on the second do not wait."""

    def stop(name: str) -> None:
        log.info("server.stopping", signal=name)
        server.force_exit = server.should_exit
        server.should_exit = True
        live.end_streams()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop, number.name)


def _limits(settings: ServeSettings) -> Limits:
    return Limits(
        requests_per_s=settings.requests_per_s,
        requests_burst=settings.requests_burst,
        renewals_per_s=settings.renewals_per_s,
        body_bytes=int(settings.body_mib * (1 << 20)),
    )


async def _setting(settings: ServeSettings, tokens: Tokens) -> tuple[Setting, Engine]:
    plugin, options = engine_plugin(settings.engine)
    opened = plugin.open(settings.site, options)
    engine, emulated = opened.engine, opened.emulated
    cluster = await engine.inventory()
    speeds = read_speeds(settings.speeds or DEFAULT_SPEEDS)
    if not emulated:
        # Nobody has measured these devices yet: all are alike until somebody has.
        speeds = replace(speeds, assumed=1.0)
    rules = build_scheduling_config(settings.policy, settings.mechanism, settings.round_s, speeds)
    round_s = round_length_s(rules.mechanism)
    setting = Setting(
        cluster=cluster,
        rules=rules,
        remake=load_scheduling_config,
        data=settings.data.absolute(),
        environment=_environment(settings, tokens, speeds if emulated else None, round_s),
        emulated=speeds if emulated else None,
    )
    return setting, engine


def _environment(
    settings: ServeSettings, tokens: Tokens, emulated: SpeedTable | None, round_s: float
) -> Environment:
    url = settings.members_url

    def found(lease: int, spec: JobSpec, kinds: tuple[str, ...]) -> dict[str, str]:
        given = {
            "FAIRLEAD_URL": url,
            "FAIRLEAD_JOB_TOKEN": tokens.lease_token(lease),
            "FAIRLEAD_LEASE_S": f"{2 * round_s:g}",
        }
        if emulated is not None:
            speed = emulated.speed(spec.workload, kinds)
            given["FAIRLEAD_EMULATED_STEPS_PER_S"] = f"{speed:.17g}"
        return given

    return found


def _tokens(settings: ServeSettings, store: Store, token: int) -> Tokens:
    """Return the tokens; for a new database make a secret and the admin's token."""
    secret = store.documents("secret").get("leases")
    changes: list[Change] = []
    if secret is None:
        secret = secrets.token_hex(32)
        changes.append(Put("secret", "leases", secret))
    tokens = Tokens(store.documents("token"), bytes.fromhex(secret))
    path = settings.data / "admin.token"
    known = path.exists() and path.stat().st_size > 0
    if not known or all(other.role != "admin" for other in tokens.list()):
        text, _, change = tokens.make("admin", "admin", at=0.0)
        changes.append(change)
        store.append(token, 0, [], changes)
        _write_private(path, text)
    elif changes:
        store.append(token, 0, [], changes)
    return tokens


def _write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read."""
    aside = path.with_suffix(".tmp")
    with os.fdopen(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    aside.replace(path)
