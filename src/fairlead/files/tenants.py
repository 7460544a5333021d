"""Tenants files: the tenants of a cluster with weights, quotas and usage history."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fairlead.files.instance import parse_tenants
from fairlead.files.parsing import strict_json
from fairlead.files.parsing.fields import number
from fairlead.files.parsing.text import read_text
from fairlead.model.cluster import Cluster
from fairlead.model.errors import InputError
from fairlead.model.instance import Instance
from fairlead.model.tenants.tenant import Tenant
from fairlead.model.tenants.usage_decay import History


@dataclass(frozen=True, slots=True)
class TenantsFile:
    """The tenants of a cluster, and how past usage changes their weights, if at all."""

    tenants: tuple[Tenant, ...] = ()
    history: History | None = None
    source: str | None = None
    """the file's name, for errors"""

    def tenants_of(self, cluster: Cluster) -> tuple[Tenant, ...]:
        """Return the tenants and their parents; InputError if they do not fit the cluster."""
        try:
            return Instance(cluster, tenants=self.tenants).tenants
        except InputError as error:
            raise error.within(source=self.source) from None


def read_tenants(path: str | Path) -> TenantsFile:
    """Return the tenants of a JSON or YAML file."""
    from fairlead.files.parsing.document import parse_document  # noqa: PLC0415 - yaml is slow

    text = read_text(path)
    try:
        read = _tenants_file(parse_document(text, "a list of tenants"))
    except InputError as error:
        raise error.within(source=text.name) from None
    return replace(read, source=text.name)


def _tenants_file(document: object) -> TenantsFile:
    top = strict_json.members(document, required=("tenants",), optional=("history",))
    return TenantsFile(parse_tenants(top), _history(top["history"]) if "history" in top else None)


def _history(value: object) -> History:
    try:
        fields = strict_json.members(value, required=("half_life_s",), optional=("measure",))
        measure: Any = fields.get("measure", "devices")  # History refuses unknown measures
        return History(number(fields["half_life_s"]), measure)
    except InputError as error:
        where = f"history.{error.field}" if error.field else "history"
        raise InputError(error.problem, fix=error.fix, field=where) from None
