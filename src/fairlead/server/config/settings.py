"""Validated settings of a server, with the addresses derived from them."""

import os
from dataclasses import dataclass

from fairlead.engines.plugin import ANY_ADDRESS, LOOPBACK, Site, engine_plugin
from fairlead.server.config.declaration import Settings


@dataclass(frozen=True, kw_only=True)
class ServeSettings(Settings):
    """Settings of one server; :class:`Settings` declares the fields."""

    @property
    def url(self) -> str:
        """URL for clients on this machine."""
        scheme = "https" if self.tls_certificate else "http"
        host = "127.0.0.1" if self.host in (*ANY_ADDRESS, *LOOPBACK) else self.host
        return f"{scheme}://{host}:{self.port}"

    @property
    def members_url(self) -> str:
        """URL for the members of jobs, which may run on other machines."""
        plugin, _ = engine_plugin(self.engine)
        if plugin.runs_here or self.host not in ANY_ADDRESS:
            return self.url
        return self.url.replace("127.0.0.1", os.uname().nodename, 1)

    @property
    def site(self) -> Site:
        """The part of the settings that engines see."""
        return Site(
            data=self.data.absolute(),
            host=self.host,
            port=self.port,
            emulate=self.emulate,
            engine=self.engine,
        )

    @property
    def store_url(self) -> str:
        """URL of the database."""
        return self.database or f"sqlite:///{self.data / 'fairlead.db'}"
