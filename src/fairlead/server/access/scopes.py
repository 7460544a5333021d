"""Scopes of tokens: the parts of the API that a token may use, within its role."""

from typing import Literal, get_args

Scope = Literal[
    "jobs:read", "jobs:write", "cluster:read", "cluster:write", "access:read", "access:write"
]
SCOPES: tuple[Scope, ...] = get_args(Scope)

_AREAS = {
    "jobs": "jobs",
    "searches": "jobs",
    "events": "jobs",
    "code-snapshots": "jobs",
    "secrets": "jobs",
    "tenants": "cluster",
    "shares": "cluster",
    "usage": "cluster",
    "timeline": "cluster",
    "what-if": "cluster",
    "simulations": "jobs",
    "nodes": "cluster",
    "round": "cluster",
    "speeds": "cluster",
    "policy": "cluster",
    "limits": "cluster",
    "about": "cluster",
    "advice": "cluster",
    "instance": "cluster",
    "metrics": "cluster",
    "tokens": "access",
    "audit": "access",
}
"""first part of a path → area"""


def required_scope(method: str, path: str) -> str:
    """Return the scope that a request needs; for an unknown path, one that no token has."""
    first = path.removeprefix("/v1").lstrip("/").partition("/")[0]
    return f"{_AREAS.get(first, first)}:{'read' if method in ('GET', 'HEAD') else 'write'}"
