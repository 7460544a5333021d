"""Admission of submitted jobs: the checks that need the server, for one job or many."""

import asyncio
from collections.abc import Sequence

from fairlead.engines.base import SupportsCommandCheck, SupportsCopies, SupportsTenantCheck
from fairlead.engines.keeper.container import require_runtime
from fairlead.live.job_requests.rejections import Reject, reject_job
from fairlead.live.job_spec import JobSpec
from fairlead.model.errors import FairleadError, InputError
from fairlead.model.job import DEFAULT_TENANT
from fairlead.model.submission.new_job import NewJob
from fairlead.model.submission.secrets import parse_secrets
from fairlead.server.access.tokens import Principal
from fairlead.server.context import ServerContext


async def submit_jobs(
    server: ServerContext,
    principal: Principal,
    jobs: Sequence[NewJob],
    reject: Reject = reject_job,
) -> list[JobSpec]:
    """Submit all jobs or none; return them with their ids once they are persisted."""
    permissions = _Permissions(server, principal)
    tenants = [new.tenant or principal.tenant or DEFAULT_TENANT for new in jobs]
    for index, (new, tenant) in enumerate(zip(jobs, tenants, strict=True)):
        try:
            permissions.check(new, tenant)
        except FairleadError as error:
            reject(index, error)
    submissions, is_admin = server.live.jobs.submissions, principal.role == "admin"
    specs = await asyncio.to_thread(_checked_specs, server, jobs, tenants, reject)
    made = await submissions.submit(specs, principal.actor, is_admin=is_admin, reject=reject)
    for tenant in dict.fromkeys(tenants):
        await server.live.tenants.list_again(tenant)
    return made


def _checked_specs(
    server: ServerContext, jobs: Sequence[NewJob], tenants: Sequence[str], reject: Reject
) -> list[JobSpec]:
    """Return the specifications of jobs; those that cannot run here go to ``reject``."""
    specs = [JobSpec.of(new, tenant) for new, tenant in zip(jobs, tenants, strict=True)]
    _MachineChecks(server).check_all(specs, reject)
    return specs


class _Permissions:
    """Whether a principal may submit jobs of tenants, with these secrets."""

    def __init__(self, server: ServerContext, principal: Principal) -> None:
        self._server, self._principal = server, principal
        self._known: set[str] = set()
        """tenants that were found to exist"""
        self._passed: set[tuple[str, tuple[str, ...]]] = set()
        """tenants and secrets of jobs that may be submitted"""

    def check(self, new: NewJob, tenant: str) -> None:
        """Raise AuthError or InputError unless a job may be submitted for a tenant."""
        if (tenant, new.secrets) in self._passed:
            return
        self._principal.require_tenant(tenant)
        self._server.secrets.require(tenant, parse_secrets(new.secrets).values())
        if tenant not in self._known:
            self._require_known_tenant(tenant)
            self._known.add(tenant)
        self._passed.add((tenant, new.secrets))

    def _require_known_tenant(self, tenant: str) -> None:
        """Raise InputError if a job would create a tenant that no admin has named.

        An admin names a tenant by setting it, or by making a token for it.
        """
        server = self._server
        if server.info.create_tenants or tenant in (self._principal.tenant, DEFAULT_TENANT):
            return
        known = [one.id for one in server.live.tenants.listed]
        known += [token.tenant for token in server.tokens.list() if token.tenant is not None]
        if tenant not in known:
            names = ", ".join(sorted({DEFAULT_TENANT, *known})[:10])
            raise InputError(
                f"no tenant {tenant!r}",
                fix=f"expected one of {names}, or a new one: `fairlead tenants set {tenant}`",
                field="tenant",
            )


class _MachineChecks:
    """Checks against files and users of the server's machine, each made once per request."""

    def __init__(self, server: ServerContext) -> None:
        self._engine, self._snapshots = server.live.engine, server.code_snapshots
        self._passed: set[tuple[str | None, ...]] = set()

    def check_all(self, specs: Sequence[JobSpec], reject: Reject) -> None:
        """Pass the jobs that cannot run here to ``reject``."""
        for index, spec in enumerate(specs):
            program = spec.command[0], spec.directory, spec.environment.get("PATH")
            copies = "copies" if spec.may_fork else ""
            key = spec.tenant, *program, spec.container, spec.code_snapshot, copies
            if key in self._passed:
                continue
            try:
                self._check(spec)
            except FairleadError as error:
                reject(index, error)
            self._passed.add(key)

    def _check(self, spec: JobSpec) -> None:
        engine = self._engine
        if isinstance(engine, SupportsTenantCheck):
            engine.check_tenant(spec.tenant)
        if isinstance(engine, SupportsCommandCheck):
            if spec.container:
                require_runtime(spec.container)
            elif not spec.code_snapshot:
                engine.check_command(spec.command, spec.directory, spec.environment)
            elif "/" not in spec.command[0]:  # else in the snapshot, as its directory is
                engine.check_command(spec.command, "", spec.environment)
        if spec.may_fork and not isinstance(engine, SupportsCopies):
            problem = "this server's engine cannot merge the checkpoints of copies"
            raise InputError(problem, fix="expected none, or 1", field="max_copies")
        if spec.code_snapshot:
            self._snapshots.require(spec.tenant, spec.code_snapshot)
