"""From settings to a running server."""

import asyncio
import contextlib
import json
import os
import secrets
import signal
from dataclasses import dataclass, replace
from pathlib import Path

import structlog
import uvicorn

from fairlead.data import DEFAULT_SPEEDS
from fairlead.engines.gpus import find_gpus
from fairlead.engines.local import LocalEngine
from fairlead.files import read_cluster, read_speeds
from fairlead.live.driver import Live, Setting
from fairlead.live.orders import Environment
from fairlead.live.spec import JobSpec
from fairlead.mechanisms.base import Fluid
from fairlead.mechanisms.choose import realise
from fairlead.model.cluster import Cluster, Node
from fairlead.model.errors import FairleadError, UsageError
from fairlead.model.speeds import SpeedTable
from fairlead.server.app import make_app
from fairlead.server.auth import Tokens
from fairlead.store import Change, Put, Store

log = structlog.get_logger("fairlead.serve")

_LOOPBACK = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True, kw_only=True)
class ServeSettings:
    """All that ``fairlead serve`` can be told."""

    data: Path
    host: str = "127.0.0.1"
    port: int = 8642
    policy: str = "max-min"
    mechanism: str | None = None
    round_s: float | None = None
    emulate: str | None = None
    speeds: str | None = None
    database: str | None = None
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    standby_s: float = 0.0
    """how long to wait for another scheduler on the same store to end"""

    @property
    def url(self) -> str:
        """Where clients on this machine reach the server."""
        scheme = "https" if self.tls_certificate else "http"
        host = "127.0.0.1" if self.host in ("0.0.0.0", "::", *_LOOPBACK) else self.host
        return f"{scheme}://{host}:{self.port}"

    @property
    def store_url(self) -> str:
        """The database's address."""
        return self.database or f"sqlite:///{self.data / 'fairlead.db'}"


class TakenError(FairleadError):
    """Another scheduler works on this store."""

    code = "taken"


def serve(settings: ServeSettings) -> None:
    """Run until a signal ends it; jobs go on without the server."""
    asyncio.run(_serve(settings))


async def _serve(settings: ServeSettings) -> None:
    if settings.host not in _LOOPBACK and settings.tls_certificate is None:
        raise UsageError(
            f"--host {settings.host} would send tokens in the clear; give --tls-certificate and"
            " --tls-key, or listen on 127.0.0.1 behind a proxy that has them"
        )
    settings.data.mkdir(parents=True, exist_ok=True, mode=0o700)
    store = Store(settings.store_url)
    token = store.acquire(f"{os.uname().nodename}:{os.getpid()}", wait_s=settings.standby_s)
    if token is None:
        raise TakenError(
            f"another scheduler works on {settings.data}; stop it, or give --standby SECONDS"
        )
    tokens = _tokens(settings, store, token)
    setting, engine = _setting(settings, tokens)
    live = Live(store, engine, setting, token)
    await live.start()
    _write_private(settings.data / "server.json", json.dumps({"url": settings.url}))
    log.info("server.started", url=settings.url, policy=settings.policy)
    try:
        await _listen(settings, live, tokens)
    finally:
        await live.stop()
        store.close()


async def _listen(settings: ServeSettings, live: Live, tokens: Tokens) -> None:
    config = uvicorn.Config(
        make_app(live, tokens),
        host=settings.host,
        port=settings.port,
        log_config=None,
        access_log=False,
        ssl_certfile=settings.tls_certificate,
        ssl_keyfile=settings.tls_key,
        timeout_graceful_shutdown=3,
        timeout_keep_alive=30,
    )
    server = uvicorn.Server(config)
    stopping = asyncio.create_task(live.broken.wait())
    serving = asyncio.create_task(server.serve())
    done, _ = await asyncio.wait({stopping, serving}, return_when=asyncio.FIRST_COMPLETED)
    if serving not in done:
        # The store or the driver failed: only a fresh start from what is written is safe.
        os.kill(os.getpid(), signal.SIGKILL)
    stopping.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await stopping
    await serving


def _setting(settings: ServeSettings, tokens: Tokens) -> tuple[Setting, LocalEngine]:
    cluster, visible = _devices(settings)
    speeds = read_speeds(settings.speeds or DEFAULT_SPEEDS)
    if visible:
        # Nobody has measured these devices yet: all are alike until somebody has.
        speeds = replace(speeds, assumed=1.0)
    mechanism = realise(settings.policy, settings.mechanism, settings.round_s)
    if isinstance(mechanism, Fluid):
        raise UsageError("a fluid mechanism gives fractions of devices: for simulation only")
    round_s = float(getattr(mechanism, "round_s", 60.0))
    setting = Setting(
        cluster=cluster,
        beliefs=speeds,
        mechanism=mechanism,
        data=settings.data.absolute(),
        plan_lead_s=min(0.25 * round_s, 30.0),
        environment=_environment(settings, tokens, speeds, round_s),
    )
    return setting, LocalEngine(settings.data.absolute(), cluster, visible)


def _devices(settings: ServeSettings) -> tuple[Cluster, tuple[str, ...]]:
    """Return the devices to schedule, and what CUDA calls each; emulated ones have no names."""
    if settings.emulate is not None:
        return read_cluster(settings.emulate), ()
    gpus = find_gpus()
    if not gpus:
        raise UsageError("no GPUs were found on this machine; try --emulate v100=2,k80=4")
    node = Node(os.uname().nodename, tuple(gpu.accelerator for gpu in gpus))
    return Cluster((node,)), tuple(gpu.uuid for gpu in gpus)


def _environment(
    settings: ServeSettings, tokens: Tokens, speeds: SpeedTable, round_s: float
) -> Environment:
    def found(lease: int, spec: JobSpec, kinds: tuple[str, ...]) -> dict[str, str]:
        given = {
            "FAIRLEAD_URL": settings.url,
            "FAIRLEAD_JOB_TOKEN": tokens.lease_token(lease),
            "FAIRLEAD_LEASE_S": f"{2 * round_s:g}",
        }
        if settings.emulate is not None:
            speed = speeds.speed(spec.workload, kinds)
            given["FAIRLEAD_EMULATED_STEPS_PER_S"] = f"{speed:.17g}"
        return given

    return found


def _tokens(settings: ServeSettings, store: Store, token: int) -> Tokens:
    """Return the tokens; on the first start make a secret and the admin's token."""
    secret = store.documents("secret").get("leases")
    changes: list[Change] = []
    if secret is None:
        secret = secrets.token_hex(32)
        changes.append(Put("secret", "leases", secret))
    tokens = Tokens(store.documents("token"), bytes.fromhex(secret))
    path = settings.data / "admin.token"
    if not path.exists():
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
    aside.replace(path)
