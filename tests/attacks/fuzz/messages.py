"""Requests with edge values in every field, for every endpoint that a tenant or admin may use."""

from dataclasses import dataclass
from random import Random
from typing import Any
from urllib.parse import quote, urlencode

from tests.attacks.fuzz.values import NUMBERS, TEXTS, as_json, hostile_json, mutated

from fairlead.model.submission.fields import declared_fields
from fairlead.model.submission.new_job import NewJob
from fairlead.server.api import schemas as msg
from fairlead.server.api.job_messages import JobChange
from fairlead.server.api.speed_messages import SpeedsImport

NEW_JOB = {"command": ["true"], "workload": "small", "retries": 0}
NEW_JOB_FIELDS = tuple(item.name for item in declared_fields(NewJob))


@dataclass(frozen=True)
class Endpoint:
    """A method and path with the base of its body and its query parameters."""

    method: str
    path: str
    body: dict[str, Any] | None = None
    fields: tuple[str, ...] = ()
    query: tuple[str, ...] = ()
    as_admin: bool = False


@dataclass(frozen=True)
class Request:
    """One request to send."""

    method: str
    path: str
    body: bytes | None
    as_admin: bool


def _fields(message: Any) -> tuple[str, ...]:
    return tuple(message.model_fields)


_RENEWAL = {"rank": 0, "started": 1, "steps": 1.0}
_TENANT = {"id": "mallory", "weight": 1.0}
ENDPOINTS = (
    Endpoint("POST", "/v1/jobs", NEW_JOB, NEW_JOB_FIELDS),
    Endpoint("POST", "/v1/jobs", NEW_JOB, NEW_JOB_FIELDS),
    Endpoint("POST", "/v1/jobs", NEW_JOB, NEW_JOB_FIELDS),
    Endpoint("PATCH", "/v1/jobs/{job}", {"priority": 1}, _fields(JobChange)),
    Endpoint("GET", "/v1/jobs", query=("state", "tenant", "name", "after", "limit", "newest")),
    Endpoint("GET", "/v1/jobs/{job}"),
    Endpoint("GET", "/v1/jobs/{job}/explain"),
    Endpoint("GET", "/v1/jobs/{job}/logs", query=("rank", "after", "follow")),
    Endpoint("POST", "/v1/jobs/{job}/suspend"),
    Endpoint("POST", "/v1/jobs/{job}/resume"),
    Endpoint("POST", "/v1/jobs/{job}/cancel", query=("force",)),
    Endpoint("POST", "/v1/leases/{number}/renew", _RENEWAL, _fields(msg.Renewal)),
    Endpoint("POST", "/v1/leases/{number}/secrets"),
    Endpoint("PUT", "/v1/secrets/{name}", {"value": "x"}, _fields(msg.NewSecret)),
    Endpoint("DELETE", "/v1/secrets/{name}"),
    Endpoint("PUT", "/v1/tenants/mallory", _TENANT, _fields(msg.TenantView), as_admin=True),
    Endpoint("POST", "/v1/tokens", {"name": "t"}, _fields(msg.NewToken), as_admin=True),
    Endpoint("POST", "/v1/tokens/{name}/rotate", {}, _fields(msg.TokenRotation), as_admin=True),
    Endpoint("GET", "/v1/audit", query=("before", "limit", "author", "since"), as_admin=True),
    Endpoint("POST", "/v1/nodes/{name}/drain", as_admin=True),
    Endpoint("GET", "/v1/shares"),
    Endpoint("GET", "/v1/speeds"),
    Endpoint("PUT", "/v1/speeds/table", {"speeds": "x"}, _fields(SpeedsImport), as_admin=True),
    Endpoint(
        "DELETE",
        "/v1/speeds/measured",
        query=("tenant", "workload", "accelerator"),
        as_admin=True,
    ),
    Endpoint("GET", "/v1/nodes"),
)


def hostile_request(rng: Random, job: str) -> Request:
    """Return a request with edge values; ``job`` is one of the attacker's."""
    endpoint = rng.choice(ENDPOINTS)
    path = endpoint.path.replace("{job}", job if rng.random() < 0.7 else _segment(rng))
    path = path.replace("{number}", _segment(rng)).replace("{name}", _segment(rng))
    if endpoint.query:
        chosen = rng.sample(endpoint.query, rng.randint(1, len(endpoint.query)))
        values = {name: _query_value(rng) for name in chosen}
        path += "?" + urlencode(values, errors="replace")
    body = None
    if endpoint.body is not None:
        if rng.random() < 0.15:
            body = hostile_json(rng, endpoint.body)
        else:
            body = as_json(mutated(rng, endpoint.body, endpoint.fields))
    return Request(endpoint.method, path, body, endpoint.as_admin)


def _segment(rng: Random) -> str:
    text = str(rng.choice((*NUMBERS, *TEXTS, "j1", "local")))[:300]
    return quote(text, safe="", errors="replace") or "-"


def _query_value(rng: Random) -> str:
    return str(rng.choice((*NUMBERS, *TEXTS)))[:1000]
