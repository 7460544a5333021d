"""Start-up and shutdown of a server."""

import asyncio
import contextlib
import json
import logging
import os
import secrets
import signal
import socket
from collections.abc import Iterator
from dataclasses import replace

import sqlalchemy as sa
import structlog
import uvicorn

from fairlead.atomic_file import replace_text
from fairlead.data import DEFAULT_SPEEDS
from fairlead.engines.base import Engine
from fairlead.engines.plugin import engine_plugin
from fairlead.files import read_speeds
from fairlead.live.config import LiveConfig
from fairlead.live.driver import Live
from fairlead.live.job_spec import JobSpec
from fairlead.live.leases.orders import Environment
from fairlead.model.errors import FairleadError, InputError
from fairlead.model.speeds.table import SpeedTable
from fairlead.server.access.rate_limits import RateLimits
from fairlead.server.access.tokens import Tokens
from fairlead.server.api.app import make_app
from fairlead.server.config.scheduling import (
    build_scheduling_config,
    load_scheduling_config,
    round_length_s,
)
from fairlead.server.config.settings import ServeSettings
from fairlead.server.connections import LimitedProtocol, WarningLimit
from fairlead.server.context import ServerInfo
from fairlead.server.logs import set_up
from fairlead.store import Change, Put, Store

log = structlog.get_logger("fairlead.serve")


class AlreadyRunningError(FairleadError):
    """Another scheduler uses this store, or another program uses the port."""

    code = "taken"


def serve(settings: ServeSettings) -> None:
    """Run until a signal stops the server; jobs keep running."""
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
            f"data: {settings.data} is in use by another scheduler: stop it, or use --standby"
        )
    listening_socket = _bind_socket(settings)
    tokens = _tokens(settings, store, token)
    config, engine = await _live_config(settings, tokens)
    live = Live(store, engine, config, token)
    await live.start()
    replace_text(settings.data / "server.json", json.dumps({"url": settings.url}), mode=0o600)
    log.info("server.started", url=settings.url, policy=settings.policy)
    try:
        await _listen(settings, live, tokens, listening_socket)
    finally:
        await live.stop()
        store.close()
        listening_socket.close()
        log.info("server.stopped")


def _open(settings: ServeSettings) -> Store:
    """Open the store, create it if necessary; raise InputError with the setting at fault."""
    try:
        settings.data.mkdir(parents=True, exist_ok=True, mode=0o700)
        (settings.data / "jobs").mkdir(exist_ok=True, mode=0o700)
    except OSError as error:
        problem = f"cannot create directory {settings.data} ({error.strerror})"
        raise InputError(problem, fix="expected a writable directory", field="data") from None
    try:
        _make_private(settings.store_url)
        return Store(settings.store_url)
    except (sa.exc.DatabaseError, sa.exc.NoSuchModuleError, ImportError) as error:
        why = str(getattr(error, "orig", error)).splitlines()[0]
        fix = "check that the database runs and that URL, user and password are right"
        raise InputError(f"cannot be opened ({why})", fix=fix, field="database") from None


def _make_private(store_url: str) -> None:
    """Create a new SQLite database with access for its owner only: it holds secrets.

    SQLite creates its other files with the same mode.
    """
    address = sa.make_url(store_url)
    name = address.database or ":memory:"
    if address.get_backend_name() == "sqlite" and not name.startswith((":", "file:")):
        with contextlib.suppress(OSError):  # opening the store reports the problem
            os.close(os.open(name, os.O_WRONLY | os.O_CREAT, 0o600))


def _bind_socket(settings: ServeSettings) -> socket.socket:
    """Bind the address before the first decision: an unreachable server must not schedule."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    # asyncio sets TCP_NODELAY only on sockets whose protocol is TCP.
    listening_socket = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening_socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening_socket.bind((settings.host, settings.port))
    except OSError as error:
        listening_socket.close()
        raise AlreadyRunningError(
            f"port: cannot listen on {settings.host}:{settings.port} ({error.strerror}): use"
            " another --port, or stop the program that listens there"
        ) from None
    return listening_socket


async def _listen(
    settings: ServeSettings, live: Live, tokens: Tokens, listening_socket: socket.socket
) -> None:
    app = make_app(
        live,
        tokens,
        info=ServerInfo(settings.policy, settings.mechanism),
        limits=_limits(settings),
        log_all=settings.log_level == "debug",
    )
    config = uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        log_config=None,
        access_log=False,
        http=LimitedProtocol,
        ssl_certfile=settings.tls_certificate,
        ssl_keyfile=settings.tls_key,
        timeout_graceful_shutdown=5,
        timeout_keep_alive=30,
    )
    logging.getLogger("uvicorn.error").addFilter(WarningLimit())
    server = _Server(config)
    _stop_on_signals(server, live)
    breaking = asyncio.create_task(live.broken.wait())
    serving = asyncio.create_task(server.serve(sockets=[listening_socket]))
    done, _ = await asyncio.wait({breaking, serving}, return_when=asyncio.FIRST_COMPLETED)
    if serving not in done:
        # The store or the driver failed: only a new start from the persisted state is safe.
        os.kill(os.getpid(), signal.SIGKILL)
    breaking.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await breaking
    await serving


class _Server(uvicorn.Server):
    """Captures no signals: uvicorn would raise them again before the store is closed."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _stop_on_signals(server: uvicorn.Server, live: Live) -> None:
    """Finish open requests on the first signal; exit at once on the second."""

    def stop(name: str) -> None:
        log.info("server.stopping", signal=name)
        server.force_exit = server.should_exit
        server.should_exit = True
        live.stream.publish("server.stopping")

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop, number.name)


def _limits(settings: ServeSettings) -> RateLimits:
    return RateLimits(
        requests_per_s=settings.requests_per_s,
        requests_burst=settings.requests_burst,
        renewals_per_s=settings.renewals_per_s,
        body_bytes=int(settings.body_mib * (1 << 20)),
    )


async def _live_config(settings: ServeSettings, tokens: Tokens) -> tuple[LiveConfig, Engine]:
    plugin, options = engine_plugin(settings.engine)
    opened = plugin.open(settings.site, options)
    engine, emulated = opened.engine, opened.emulated
    cluster = await engine.inventory()
    speeds = read_speeds(settings.speeds or DEFAULT_SPEEDS)
    if not emulated:
        # Real devices are assumed equally fast until jobs have measured them.
        speeds = replace(speeds, assumed=1.0)
    scheduling = build_scheduling_config(
        settings.policy, settings.mechanism, settings.round_s, speeds
    )
    round_s = round_length_s(scheduling.mechanism)
    config = LiveConfig(
        cluster=cluster,
        scheduling=scheduling,
        load_scheduling=load_scheduling_config,
        data=settings.data.absolute(),
        environment=_environment(settings, tokens, speeds if emulated else None, round_s),
        emulated=speeds if emulated else None,
    )
    return config, engine


def _environment(
    settings: ServeSettings, tokens: Tokens, emulated: SpeedTable | None, round_s: float
) -> Environment:
    url = settings.members_url

    def environment(lease: int, spec: JobSpec, accelerators: tuple[str, ...]) -> dict[str, str]:
        variables = {
            "FAIRLEAD_URL": url,
            "FAIRLEAD_JOB_TOKEN": tokens.lease_token(lease),
            "FAIRLEAD_LEASE_S": f"{2 * round_s:g}",
        }
        if emulated is not None:
            speed = emulated.speed(spec.workload, accelerators)
            variables["FAIRLEAD_EMULATED_STEPS_PER_S"] = f"{speed:.17g}"
        return variables

    return environment


def _tokens(settings: ServeSettings, store: Store, token: int) -> Tokens:
    """Return the tokens; for a new database, make a secret and an admin token."""
    secret = store.documents("secret").get("leases")
    changes: list[Change] = []
    if secret is None:
        secret = secrets.token_hex(32)
        changes.append(Put("secret", "leases", secret))
    tokens = Tokens(store.documents("token"), bytes.fromhex(secret))
    path = settings.data / "admin.token"
    has_admin_file = path.exists() and path.stat().st_size > 0
    if not has_admin_file or all(other.role != "admin" for other in tokens.list()):
        text, _, change = tokens.make("admin", "admin", at=0.0)
        changes.append(change)
        store.append(token, 0, [], changes)
        replace_text(path, text, mode=0o600)
    elif changes:
        store.append(token, 0, [], changes)
    return tokens
