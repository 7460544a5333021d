"""Start-up and shutdown of a server."""

import asyncio
import contextlib
import gc
import json
import logging
import os
import secrets
import signal
import socket
from collections.abc import Callable, Iterator
from functools import partial

import sqlalchemy as sa
import structlog
import uvicorn

from fairlead.atomic_file import replace_text
from fairlead.engines.base import SupportsHandOver
from fairlead.engines.plugin import OpenedEngine, engine_plugin
from fairlead.live.config import LiveConfig
from fairlead.live.driver import Live
from fairlead.live.job_spec import JobSpec
from fairlead.live.leases.orders import Environment
from fairlead.live.retention.cleaner import RetentionCleaner
from fairlead.live.scheduling_config import SchedulingConfig
from fairlead.model.errors import FairleadError
from fairlead.model.speeds.elastic import speed_of_size
from fairlead.model.speeds.key import Consolidation
from fairlead.model.speeds.table import SpeedTable
from fairlead.server.access.hosts import AllowedHosts
from fairlead.server.access.oidc import OidcLogin
from fairlead.server.access.rate_limits import RateLimits
from fairlead.server.access.secrets import KEY_FILE, KIND, load_job_secrets, read_secret
from fairlead.server.access.separation import require_separation, require_separation_for_logins
from fairlead.server.access.tokens import Tokens, read_token
from fairlead.server.api.app import make_app
from fairlead.server.config.beliefs import believed_speeds, hidden_speeds
from fairlead.server.config.scheduling import (
    build_scheduling_config,
    load_scheduling_config,
    round_length_s,
)
from fairlead.server.config.settings import ServeSettings
from fairlead.server.connections import LimitedProtocol, WarningLimit
from fairlead.server.context import ServerInfo
from fairlead.server.data_dir import (
    accept_log_until,
    open_store,
    quarantine_damaged_files,
    readable_documents,
)
from fairlead.server.logs import set_up
from fairlead.server.reload import SettingsReload
from fairlead.store import Change, Put, Store, StoreUnavailableError

log = structlog.get_logger("fairlead.serve")

_CHECKED_ENTRIES = 20_000
"""newest entries of the audit trail that are checked at start: all would take minutes"""


class AlreadyRunningError(FairleadError):
    """Another scheduler uses this store, or another program uses the port."""

    code = "taken"


def serve(read: Callable[[], ServeSettings], *, log_until: int | None = None) -> None:
    """Run with the settings that ``read`` returns until a signal stops the server.

    Jobs keep running. ``log_until``: number of the last event to accept of a damaged event log.
    """
    settings = read()
    set_up(settings.log_format, settings.log_level)
    asyncio.run(_serve(settings, read, log_until))


async def _serve(
    settings: ServeSettings, read: Callable[[], ServeSettings], log_until: int | None
) -> None:
    store = open_store(settings)
    owner = f"{os.uname().nodename}:{os.getpid()}"
    token = store.acquire(owner)
    if token is None and settings.standby_s > 0:
        log.info("server.standby", seconds=settings.standby_s)
        token = store.acquire(owner, wait_s=settings.standby_s)
    if token is None:
        waited = f" after {settings.standby_s:g} s" if settings.standby_s > 0 else ""
        fix = "wait longer" if settings.standby_s > 0 else "use --standby"
        raise AlreadyRunningError(
            f"data: {settings.data} is in use by another scheduler{waited}: stop it, or {fix}"
        )
    listening_socket = _bind_socket(settings)
    quarantine_damaged_files(settings.data)
    if log_until is not None:
        accept_log_until(store, token, log_until, settings.data)
    tokens = _tokens(settings, store, token)
    opened = _open_engine(settings, tokens)
    config = await _live_config(settings, tokens, opened)
    live = Live(store, opened.engine, config, token)
    await live.start()
    about = {"url": settings.url, "emulate": settings.site.emulate}
    replace_text(settings.data / "server.json", json.dumps(about), mode=0o600)
    token_file = str(settings.data / "admin.token")
    policy = live.policy.config.policy
    log.info("server.started", url=settings.url, admin_token_in=token_file, policy=policy)
    checking = asyncio.create_task(_check_audit_trail(store))
    cleaner = RetentionCleaner(live, settings.retention)
    live.tasks.spawn(cleaner.run())
    info = ServerInfo(_may_share(settings, opened), settings.create_tenants)
    SettingsReload(read, settings, live, cleaner, info).install()
    try:
        await _listen(settings, live, tokens, listening_socket, info)
    finally:
        await checking
        await live.stop()
        store.close()
        listening_socket.close()
        log.info("server.stopped")


async def _check_audit_trail(store: Store) -> None:
    """Log whether the newest part of the audit trail is intact."""
    try:
        result = await asyncio.to_thread(store.verify_audit_trail, _CHECKED_ENTRIES)
    except sa.exc.SQLAlchemyError as error:
        log.warning("audit.unchecked", error=str(error).partition("\n")[0])
        return
    if result.problem is None:
        log.info("audit.intact", entries=result.entries, newest_hash=result.newest_hash)
    else:
        log.error("audit.broken", problem=result.problem)


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
    settings: ServeSettings,
    live: Live,
    tokens: Tokens,
    listening_socket: socket.socket,
    info: ServerInfo,
) -> None:
    app = make_app(
        live,
        tokens,
        secrets=load_job_secrets(_sealed_secrets(settings, live), settings.data / KEY_FILE),
        info=info,
        snapshot_limits=settings.snapshot_limits,
        limits=_limits(settings),
        hosts=_hosts(settings),
        oidc=None if settings.oidc is None else OidcLogin(settings.oidc),
    )
    # Modules and schemas stay: collections that scan them delay requests by 200 ms. A page of
    # jobs makes some 8,000 objects without cycles: no reason for a dozen collections.
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
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
    breaking = asyncio.create_task(live.tasks.broken.wait())
    serving = asyncio.create_task(server.serve(sockets=[listening_socket]))
    done, _ = await asyncio.wait({breaking, serving}, return_when=asyncio.FIRST_COMPLETED)
    if serving not in done:
        # The store or the driver failed: only a new start from the persisted state is safe.
        if not isinstance(live.tasks.failure, StoreUnavailableError):
            os.kill(os.getpid(), signal.SIGKILL)
        server.should_exit = True
    breaking.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await breaking
    await serving
    if isinstance(live.tasks.failure, StoreUnavailableError):
        raise live.tasks.failure


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


def _sealed_secrets(settings: ServeSettings, live: Live) -> dict[str, str]:
    return readable_documents(live.store, live.token, KIND, read_secret, settings.data)


def _hosts(settings: ServeSettings) -> AllowedHosts:
    hosts = AllowedHosts(settings.host, settings.allowed_names)
    hosts.add_full_name()
    return hosts


def _limits(settings: ServeSettings) -> RateLimits:
    return RateLimits(
        requests_per_s=settings.requests_per_s,
        requests_burst=settings.requests_burst,
        renewals_per_s=settings.renewals_per_s,
        body_bytes=int(settings.body_mib * (1 << 20)),
    )


def _open_engine(settings: ServeSettings, tokens: Tokens) -> OpenedEngine:
    """Return the engine; UnseparatedTenantsError if its jobs could act as other tenants."""
    plugin, options = engine_plugin(settings.engine)
    opened = plugin.open(settings.site, options)
    may_share = _may_share(settings, opened)
    require_separation(tokens.list(), separates_tenants=may_share)
    if settings.oidc is not None:
        require_separation_for_logins(separates_tenants=may_share)
    return opened


def _may_share(settings: ServeSettings, opened: OpenedEngine) -> bool:
    """Return whether jobs of several tenants may run on an engine."""
    return opened.separates_tenants or settings.trust_jobs


async def _live_config(
    settings: ServeSettings, tokens: Tokens, opened: OpenedEngine
) -> LiveConfig:
    cluster = await opened.engine.inventory()
    speeds = believed_speeds(settings)
    hidden = hidden_speeds(settings, emulated=opened.emulated)
    emulated = hidden or (speeds if opened.emulated else None)
    engine = opened.engine
    hands_over = isinstance(engine, SupportsHandOver) and engine.prepares
    scheduling = build_scheduling_config(
        settings.policy,
        settings.mechanism,
        settings.round_s,
        speeds,
        settings.weight_scope,
        hands_over=hands_over,
    )
    round_s = round_length_s(scheduling.mechanism)
    return LiveConfig(
        cluster=cluster,
        scheduling=scheduling,
        load_scheduling=partial(load_scheduling_config, hands_over=hands_over),
        start_settings=_start_settings(settings, scheduling),
        data=settings.data.absolute(),
        environment=_environment(settings, tokens, emulated, round_s),
        emulated=emulated,
        learns_speeds=emulated is not speeds,
        device_chooser=opened.device_chooser,
        notified_urls=settings.notified_urls,
    )


def _start_settings(settings: ServeSettings, scheduling: SchedulingConfig) -> str:
    """Return the settings of the scheduling config; a later version's bundled speeds are equal."""
    speeds = None if settings.speeds is None else scheduling.speeds_label
    values = (settings.policy, settings.mechanism, settings.round_s, settings.weight_scope)
    # Changes that an earlier version stored lack the quantile and exploration.
    planned = () if settings.plan_on == 0.5 else (settings.plan_on,)
    explores = ("explore",) if settings.explore else ()
    return json.dumps([*values, speeds, *planned, *explores])


def _environment(
    settings: ServeSettings, tokens: Tokens, emulated: SpeedTable | None, round_s: float
) -> Environment:
    url = settings.members_url

    def environment(
        lease: int, spec: JobSpec, accelerators: tuple[str, ...], placement: Consolidation
    ) -> dict[str, str]:
        variables = {
            "FAIRLEAD_URL": url,
            "FAIRLEAD_JOB_TOKEN": tokens.lease_token(lease),
            "FAIRLEAD_LEASE_S": f"{2 * round_s:g}",
        }
        if emulated is not None:
            speed = speed_of_size(emulated, spec.workload, accelerators, spec.gang, placement)
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
    used = readable_documents(store, token, "token-use", float, settings.data)
    stored = readable_documents(store, token, "token", read_token, settings.data)
    tokens = Tokens(stored, bytes.fromhex(secret), used)
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
