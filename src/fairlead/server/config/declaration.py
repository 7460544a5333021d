"""Declaration of every server setting: type, default, limits, help and flag.

The settings loader, the options of ``fairlead serve`` and the checks of the guide are derived from
the class ``Settings``. It imports neither pydantic nor the engines, so that the command line
starts fast.
"""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from fairlead.model.submission.bounds import ROUND_RANGE
from fairlead.server.config.jobs import JobSettings
from fairlead.server.config.option import Option
from fairlead.server.config.retention import RetentionSettings
from fairlead.server.config.speeds import SpeedSettings

PREFIX = "FAIRLEAD_"
"""prefix of the environment variables"""

_SERVER, _ACCESS, _LOGS, _LIMITS = "Server", "Access", "Logs", "Limits"
_MAX_AMOUNT = 1e12


@dataclass(frozen=True, kw_only=True, eq=False, repr=False, init=False)
class _CoreSettings:
    """Settings of ``fairlead serve`` that concern the server as a whole."""

    data: Annotated[
        Path,
        Option(
            help="Directory for the database, logs, checkpoints and admin token.",
            expected="a directory",
            default="~/.fairlead",
        ),
    ]
    host: Annotated[
        str,
        Option(
            help="Address to listen on; any but loopback requires TLS.",
            expected="an address; any but loopback requires TLS",
            min_length=1,
            panel=_SERVER,
        ),
    ] = "127.0.0.1"
    port: Annotated[
        int,
        Option(
            help="Port to listen on, 1 to 65535.",
            expected="a port from 1 to 65535",
            ge=1,
            le=65535,
            panel=_SERVER,
        ),
    ] = 8642
    policy: Annotated[
        str,
        Option(
            help="Scheduling policy: see `fairlead policies`.",
            expected="a policy: see `fairlead policies`",
            min_length=1,
        ),
    ] = "max-min"
    mechanism: Annotated[
        str | None,
        Option(
            help="Mechanism that realises shares: see `fairlead policies`.",
            expected="a mechanism: see `fairlead policies`",
            default="the policy's",
        ),
    ] = None
    round_s: Annotated[
        float | None,
        Option(
            help="Length of a round in seconds, at least 0.001.",
            expected=f"{ROUND_RANGE.least:g} to {ROUND_RANGE.most:g} seconds",
            default="the mechanism's",
            flag="--round",
            ge=ROUND_RANGE.least,
            le=ROUND_RANGE.most,
        ),
    ] = None
    weight_scope: Annotated[
        Literal["cluster", "tenant", "entitlement"],
        Option(
            help="Scope of job weights and priorities: tenant (a tenant's numbers order its own"
            " jobs), entitlement (and its jobs together weigh its entitlement) or cluster.",
            expected="cluster, tenant or entitlement",
        ),
    ] = "tenant"
    engine: Annotated[
        str,
        Option(
            help="Engine that starts processes: local, local:users, local:mps,"
            " slurm[:partition=P,…], ray[:address=A,…], or rehearsal, which starts none.",
            expected="an engine: local, rehearsal, slurm:partition=gpu, ray:node-dir=D, …",
            min_length=1,
        ),
    ] = "local"
    trust_jobs: Annotated[
        bool,
        Option(
            help="Serve several tenants on an engine that does not separate their jobs: every job"
            " can act as every tenant, and as admin.",
            expected="true or false",
            default="no",
            panel=_ACCESS,
        ),
    ] = False
    job_environment: Annotated[
        str | None,
        Option(
            help="Variables that jobs inherit from the server besides the usual ones: NAME or"
            " PREFIX_*, separated by commas.",
            expected="names of variables separated by commas, such as HTTP_PROXY,WANDB_*",
            min_length=1,
            panel=_ACCESS,
        ),
    ] = None
    processes_per_device: Annotated[
        int,
        Option(
            help="Maximum number of processes and threads of a job, for each of its devices; on"
            " the local engine.",
            expected="a number of processes, at least 16",
            ge=16,
            le=10**9,
            panel=_LIMITS,
        ),
    ] = 4096
    offload_memory_gib: Annotated[
        float,
        Option(
            help="Host memory of a node, in GiB, in which preempted processes may stay without"
            " their devices; 0: they exit. On the local engine.",
            expected="a number of GiB, 0 or more",
            flag="--offload-memory",
            ge=0.0,
            le=_MAX_AMOUNT,
            panel=_LIMITS,
        ),
    ] = 0.0
    emulate: Annotated[
        str | None,
        Option(
            help="Devices to emulate at the believed speeds: v100=2,k80=4, or a YAML file.",
            expected="devices to emulate, such as v100=2,k80=4, or a YAML file",
            default="this machine's GPUs",
            may_be_file=True,
        ),
    ] = None
    node_name: Annotated[
        str | None,
        Option(
            help="Name of this machine as a node, on the local engine with real GPUs.",
            expected="a name of 1 to 128 characters",
            default="the host name",
            min_length=1,
        ),
    ] = None
    create_tenants: Annotated[
        bool,
        Option(
            help="Let a submission create the tenant that it names, if there is none.",
            expected="true or false",
            default="no",
            panel=_ACCESS,
        ),
    ] = False
    database: Annotated[
        str | None,
        Option(
            help="Database URL: postgresql+psycopg://….",
            expected="a URL such as postgresql+psycopg://user@host/name",
            default="SQLite in the data directory",
            panel=_SERVER,
            has_password=True,
        ),
    ] = None
    database_password_file: Annotated[
        Path | None,
        Option(
            help="File with the database's password, readable for the server's user only.",
            expected="a file that only its owner can read",
            default="FAIRLEAD_DATABASE_PASSWORD",
            panel=_SERVER,
        ),
    ] = None
    database_wait_s: Annotated[
        float,
        Option(
            help="Seconds to wait for a database that is locked or unreachable.",
            expected="seconds, 0 or more",
            flag="--database-wait",
            ge=0,
            le=_MAX_AMOUNT,
            panel=_SERVER,
        ),
    ] = 60.0
    tls_certificate: Annotated[
        Path | None,
        Option(help="TLS certificate, a PEM file.", expected="a PEM file", panel=_SERVER),
    ] = None
    tls_key: Annotated[
        Path | None,
        Option(help="Key of the certificate, a PEM file.", expected="a PEM file", panel=_SERVER),
    ] = None
    standby_s: Annotated[
        float,
        Option(
            help="Seconds to wait for another scheduler on this database to end.",
            expected="seconds, 0 or more",
            flag="--standby",
            ge=0,
            le=_MAX_AMOUNT,
            panel=_SERVER,
        ),
    ] = 0.0
    allowed_hosts: Annotated[
        str | None,
        Option(
            help="Further names of the server, separated by commas; * for any.",
            expected="names separated by commas, such as cluster.example.org",
            default="the address, localhost and this machine's names",
            min_length=1,
            panel=_ACCESS,
        ),
    ] = None
    oidc_issuer: Annotated[
        str | None,
        Option(
            help="OpenID Connect provider at which users log in, as an https URL.",
            expected="an https URL, or http on this machine",
            min_length=1,
            panel=_ACCESS,
        ),
    ] = None
    oidc_client_id: Annotated[
        str | None,
        Option(
            help="Client id of this server at the provider.",
            expected="the client id that the provider knows",
            min_length=1,
            panel=_ACCESS,
        ),
    ] = None
    oidc_audience: Annotated[
        str | None,
        Option(
            help="Audience that the provider's tokens must name.",
            expected="an audience",
            default="the client id",
            min_length=1,
            panel=_ACCESS,
        ),
    ] = None
    oidc_tenant_claim: Annotated[
        str,
        Option(
            help="Claim that holds the user's tenant.",
            expected="the name of a claim",
            min_length=1,
            panel=_ACCESS,
        ),
    ] = "tenant"
    oidc_groups_claim: Annotated[
        str,
        Option(
            help="Claim that holds the list of the user's groups.",
            expected="the name of a claim",
            min_length=1,
            panel=_ACCESS,
        ),
    ] = "groups"
    oidc_admin_group: Annotated[
        str | None,
        Option(
            help="Group whose members are admins.",
            expected="the name of a group",
            min_length=1,
            panel=_ACCESS,
        ),
    ] = None
    oidc_viewer_group: Annotated[
        str | None,
        Option(
            help="Group whose members may see everything.",
            expected="the name of a group",
            min_length=1,
            panel=_ACCESS,
        ),
    ] = None
    log_format: Annotated[
        Literal["text", "json"],
        Option(help="Log format: text or json.", expected="text or json", panel=_LOGS),
    ] = "text"
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        Option(
            help="Least level to log: debug, info, warning or error.",
            expected="debug, info, warning or error",
            panel=_LOGS,
        ),
    ] = "info"
    requests_per_s: Annotated[
        float,
        Option(
            help="Requests per second and token.",
            expected="requests per second, above 0",
            gt=0,
            le=_MAX_AMOUNT,
            panel=_LIMITS,
        ),
    ] = 1000.0
    requests_burst: Annotated[
        int,
        Option(
            help="Requests of one token in a burst.",
            expected="a number of requests, at least 1",
            ge=1,
            le=10**9,
            panel=_LIMITS,
        ),
    ] = 10_000
    renewals_per_s: Annotated[
        float,
        Option(
            help="Renewals per second and lease.",
            expected="renewals per second, above 0",
            gt=0,
            le=_MAX_AMOUNT,
            panel=_LIMITS,
        ),
    ] = 1000.0
    body_mib: Annotated[
        float,
        Option(
            help="Maximum size of a request in MiB.",
            expected="MiB, above 0",
            gt=0,
            le=_MAX_AMOUNT,
            panel=_LIMITS,
        ),
    ] = 4.0


@dataclass(frozen=True, kw_only=True, eq=False, repr=False, init=False)
class Settings(JobSettings, RetentionSettings, SpeedSettings, _CoreSettings):
    """All settings of ``fairlead serve``, in the order of its help."""


_HINTS = {field.name: get_args(field.type) for field in fields(Settings)}
TYPES: dict[str, Any] = {name: hint[0] for name, hint in _HINTS.items()}
OPTIONS: dict[str, Option] = {name: hint[1] for name, hint in _HINTS.items()}
NAMES = tuple(OPTIONS)
DEFAULTS: dict[str, Any] = {
    **{field.name: field.default for field in fields(Settings)},
    "data": Path("~/.fairlead"),
}


def variable_of(name: str) -> str:
    """Return the environment variable of a setting."""
    return PREFIX + name.upper()


def flag_of(name: str) -> str:
    """Return the flag of a setting."""
    return OPTIONS[name].flag or f"--{name.replace('_', '-')}"


def default_text(name: str) -> str | None:
    """Return a setting's default as the help shows it; None if there is none to show."""
    default = DEFAULTS[name]
    if OPTIONS[name].default is not None or default is None:
        return OPTIONS[name].default
    return f"{default:g}" if isinstance(default, float) else str(default)
