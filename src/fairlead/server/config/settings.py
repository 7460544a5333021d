"""Validated settings of a server, with the addresses derived from them."""

import os
from dataclasses import dataclass, field

import sqlalchemy as sa

from fairlead.code_snapshot.location import SnapshotLimits
from fairlead.engines.plugin import ANY_ADDRESS, LOOPBACK, Site, engine_plugin
from fairlead.live.job_ends.urls import AllowedUrls
from fairlead.live.retention.limits import RetentionLimits
from fairlead.server.access.hosts import read_allowed_names
from fairlead.server.access.oidc import OidcConfig
from fairlead.server.config.declaration import Settings
from fairlead.server.config.retention import seconds_of


@dataclass(frozen=True, kw_only=True, repr=False)
class ServeSettings(Settings):
    """Settings of one server; :class:`Settings` declares the fields."""

    database_password: str | None = field(default=None, repr=False)
    """password from a file or the environment; never a flag, and never shown"""

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
            node_name=self.node_name,
            engine=self.engine,
            job_environment=tuple(
                name.strip() for name in (self.job_environment or "").split(",") if name.strip()
            ),
            processes_per_device=self.processes_per_device,
            offload_gib=self.offload_memory_gib,
        )

    @property
    def notified_urls(self) -> AllowedUrls:
        """The URLs that jobs may notify; InputError if the setting names none."""
        return AllowedUrls.parse((self.notify_urls or "").split(","))

    @property
    def allowed_names(self) -> tuple[str, ...]:
        """Further names of the server; InputError for one that no request can have."""
        return read_allowed_names(self.allowed_hosts or "")

    @property
    def snapshot_limits(self) -> SnapshotLimits:
        """Maximum sizes of code snapshots."""
        limit, quota = self.snapshot_limit_mib, self.snapshot_quota_mib
        return SnapshotLimits(int(limit * (1 << 20)), int(quota * (1 << 20)))

    @property
    def store_url(self) -> sa.URL:
        """URL of the database, with its password; its text hides the password."""
        if self.database is None:
            return sa.URL.create("sqlite", database=str(self.data / "fairlead.db"))
        url = sa.make_url(self.database)
        return url if self.database_password is None else url.set(password=self.database_password)

    @property
    def retention(self) -> RetentionLimits:
        """Ages and sizes up to which ended jobs, files and audit entries are kept."""
        return RetentionLimits(
            jobs_s=seconds_of(self.keep_jobs),
            logs_s=seconds_of(self.keep_logs),
            checkpoints_s=seconds_of(self.keep_checkpoints),
            audit_s=seconds_of(self.keep_audit),
            logs_bytes=_bytes(self.max_logs_gib),
            checkpoints_bytes=_bytes(self.max_checkpoints_gib),
        )

    @property
    def oidc(self) -> OidcConfig | None:
        """The OpenID Connect provider; None without one."""
        if self.oidc_issuer is None or self.oidc_client_id is None:
            return None
        return OidcConfig(
            issuer=self.oidc_issuer,
            client_id=self.oidc_client_id,
            audience=self.oidc_audience or self.oidc_client_id,
            tenant_claim=self.oidc_tenant_claim,
            groups_claim=self.oidc_groups_claim,
            admin_group=self.oidc_admin_group,
            viewer_group=self.oidc_viewer_group,
        )


def _bytes(gib: float | None) -> int | None:
    return None if gib is None else int(gib * (1 << 30))
