"""Reload of the settings on SIGHUP: some change at once, the others need a restart."""

import asyncio
import signal
from collections.abc import Callable
from dataclasses import fields, replace

import structlog

from fairlead.live.driver import Live
from fairlead.live.retention.cleaner import RetentionCleaner
from fairlead.model.errors import FairleadError
from fairlead.server.config.declaration import NAMES
from fairlead.server.config.retention import RetentionSettings
from fairlead.server.config.settings import ServeSettings
from fairlead.server.context import ServerInfo
from fairlead.server.logs import set_level
from fairlead.store import Audit

log = structlog.get_logger("fairlead.serve")

RELOADED = frozenset(
    {"create_tenants", "log_level", *(field.name for field in fields(RetentionSettings))}
)
"""settings that a reload changes"""


class SettingsReload:
    """Reads the settings again, from their flags, variables and file."""

    def __init__(
        self,
        read: Callable[[], ServeSettings],
        settings: ServeSettings,
        live: Live,
        cleaner: RetentionCleaner,
        info: ServerInfo,
    ) -> None:
        self._read, self._settings = read, settings
        self._live, self._cleaner, self._info = live, cleaner, info

    def install(self) -> None:
        """Reload on every SIGHUP."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGHUP, lambda: self._live.tasks.spawn(self._reload()))

    async def _reload(self) -> None:
        try:
            read = await asyncio.to_thread(self._read)
        except (FairleadError, OSError) as error:
            log.error("settings.rejected", error=str(error))
            return
        before, live = self._settings, self._live
        changed = [name for name in NAMES if getattr(read, name) != getattr(before, name)]
        if later := [name for name in changed if name not in RELOADED]:
            log.warning("settings.need_restart", settings=later)
        values = {name: getattr(read, name) for name in changed if name in RELOADED}
        if values:
            self._settings = replace(before, **values)
            changes = {
                name: {"old": getattr(before, name), "new": new} for name, new in values.items()
            }
            await live.write(
                [Audit(live.clock.now(), "SIGHUP", "settings", "server", changes=changes)]
            )
            self._apply(self._settings)
        log.info("settings.reloaded", **values)

    def _apply(self, settings: ServeSettings) -> None:
        self._cleaner.use(settings.retention)
        self._info.create_tenants = settings.create_tenants
        set_level(settings.log_level)
