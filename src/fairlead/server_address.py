"""Addresses of servers, and the paths of their objects."""

from urllib.parse import SplitResult, quote, urlsplit

from fairlead.server_error import ServerError


def parse_address(url: str) -> SplitResult:
    """Return the parts of a server's address; ServerError if it is not one."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # a port out of range, a missing bracket
        usable = False
    if not usable:
        raise ServerError(
            f"server: bad address {url!r}: expected one such as http://127.0.0.1:8642"
        )
    return parts


def path_of(collection: str, name: str, *rest: str, field: str, fix: str) -> str:
    """Return the path of an object, with its name quoted; ServerError if the name is empty.

    Without a name it would be the path of the whole collection, or of nothing.
    """
    if not name:
        raise ServerError(f"{field}: empty: {fix}")
    return "/".join((f"/v1/{collection}", quote(name, safe=""), *rest))


def job_path(job_id: str, *rest: str) -> str:
    """Return the path of a job."""
    fix = "see `fairlead jobs` for the ids"
    return path_of("jobs", job_id, *rest, field="job id", fix=fix)


def node_path(node: str, *rest: str) -> str:
    """Return the path of a node."""
    fix = "see `fairlead nodes` for the ids"
    return path_of("nodes", node, *rest, field="node id", fix=fix)


def tenant_path(tenant: str, *rest: str) -> str:
    """Return the path of a tenant."""
    fix = "see `fairlead tenants` for the ids"
    return path_of("tenants", tenant, *rest, field="tenant id", fix=fix)


def token_path(token: str, *rest: str) -> str:
    """Return the path of a token."""
    fix = "see `fairlead tokens` for the ids"
    return path_of("tokens", token, *rest, field="token id", fix=fix)


def secret_path(name: str) -> str:
    """Return the path of a secret."""
    return path_of("secrets", name, field="secret", fix="expected a name such as HF_TOKEN")
