"""Query parameters that a route does not declare: refused, because they would have no effect."""

from fastapi import Request
from fastapi.routing import APIRoute

from fairlead.model.errors import InputError

_PREFIX = "/v1/"
"""Web pages, health and metrics ignore what browsers, balancers and collectors add."""
_MAX_NAME = 100
"""characters of a name that an error repeats"""


async def refuse_unknown_parameters(request: Request) -> None:
    """Raise InputError for a query parameter of the REST API that its route does not declare."""
    route = request.scope.get("route")
    if not request.scope["query_string"] or not isinstance(route, APIRoute):
        return
    known = [field.alias for field in route.dependant.query_params]
    unknown = [name for name in request.query_params if name not in known]
    if unknown and request.scope["path"].startswith(_PREFIX):
        fix = f"expected one of {', '.join(known)}" if known else "expected none"
        raise InputError("unknown parameter", fix=fix, field=unknown[0][:_MAX_NAME])
