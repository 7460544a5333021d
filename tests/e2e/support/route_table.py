"""Routes of the API, with the answers that each role gets."""

from typing import Any

ROLES = ("admin", "own", "other", "viewer", "lease", "invalid")
OK, DENIED, UNKNOWN, HIDDEN = "ok", 403, 401, 404

# route → status for an admin, the job's tenant, another tenant, a viewer, a lease, a bad token
EXPECTED: dict[str, tuple[Any, Any, Any, Any, Any, Any]] = {
    "POST /v1/jobs": (OK, OK, DENIED, DENIED, UNKNOWN, UNKNOWN),
    "GET /v1/jobs": (OK, OK, OK, OK, UNKNOWN, UNKNOWN),
    "POST /v1/jobs/batch": (OK, OK, DENIED, DENIED, UNKNOWN, UNKNOWN),
    # There is no such job.
    "POST /v1/jobs/changes": (HIDDEN, HIDDEN, HIDDEN, DENIED, UNKNOWN, UNKNOWN),
    "GET /v1/jobs/{job_id}": (OK, OK, HIDDEN, OK, UNKNOWN, UNKNOWN),
    "PATCH /v1/jobs/{job_id}": (OK, OK, HIDDEN, DENIED, UNKNOWN, UNKNOWN),
    "POST /v1/jobs/{job_id}/suspend": (OK, OK, HIDDEN, DENIED, UNKNOWN, UNKNOWN),
    "POST /v1/jobs/{job_id}/resume": (OK, OK, HIDDEN, DENIED, UNKNOWN, UNKNOWN),
    "POST /v1/jobs/{job_id}/cancel": (OK, 409, HIDDEN, DENIED, UNKNOWN, UNKNOWN),
    "GET /v1/jobs/{job_id}/logs": (OK, OK, HIDDEN, OK, UNKNOWN, UNKNOWN),
    "GET /v1/jobs/{job_id}/metrics": (OK, OK, HIDDEN, OK, UNKNOWN, UNKNOWN),
    "GET /v1/jobs/{job_id}/leases": (OK, OK, HIDDEN, OK, UNKNOWN, UNKNOWN),
    "GET /v1/jobs/{job_id}/speeds": (OK, OK, HIDDEN, OK, UNKNOWN, UNKNOWN),
    "GET /v1/jobs/{job_id}/explain": (OK, OK, HIDDEN, OK, UNKNOWN, UNKNOWN),
    "POST /v1/leases/{lease}/renew": (UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, 409, UNKNOWN),
    "POST /v1/leases/{lease}/secrets": (UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, 409, UNKNOWN),
    "GET /v1/code-snapshots": (OK, OK, OK, DENIED, UNKNOWN, UNKNOWN),
    "GET /v1/code-snapshots/{snapshot_id}": (HIDDEN, HIDDEN, HIDDEN, DENIED, UNKNOWN, UNKNOWN),
    # The body is no snapshot.
    "PUT /v1/code-snapshots/{snapshot_id}": (422, 422, 422, DENIED, UNKNOWN, UNKNOWN),
    "PUT /v1/secrets/{name}": (OK, OK, OK, DENIED, UNKNOWN, UNKNOWN),
    "GET /v1/secrets": (OK, OK, OK, DENIED, UNKNOWN, UNKNOWN),
    # After the PUT, in which each tenant has set a secret.
    "DELETE /v1/secrets/{name}": (OK, OK, OK, DENIED, UNKNOWN, UNKNOWN),
    "GET /v1/tenants": (OK, OK, OK, OK, UNKNOWN, UNKNOWN),
    "PUT /v1/tenants/{tenant_id}": (OK, DENIED, DENIED, DENIED, UNKNOWN, UNKNOWN),
    # After the PUT, which adds the tenant; the DELETE removes it again.
    "GET /v1/tenants/{tenant_id}/explain": (OK, HIDDEN, HIDDEN, OK, UNKNOWN, UNKNOWN),
    "DELETE /v1/tenants/{tenant_id}": (OK, DENIED, DENIED, DENIED, UNKNOWN, UNKNOWN),
    "GET /v1/searches": (OK, OK, OK, OK, UNKNOWN, UNKNOWN),
    # There is no search.
    "GET /v1/searches/trials": (HIDDEN, HIDDEN, HIDDEN, HIDDEN, UNKNOWN, UNKNOWN),
    "GET /v1/shares": (OK, OK, OK, OK, UNKNOWN, UNKNOWN),
    "GET /v1/shares/history": (OK, OK, OK, OK, UNKNOWN, UNKNOWN),
    "GET /v1/round": (OK, OK, OK, OK, UNKNOWN, UNKNOWN),
    "GET /v1/timeline": (OK, OK, OK, OK, UNKNOWN, UNKNOWN),
    "GET /v1/usage": (OK, OK, OK, OK, UNKNOWN, UNKNOWN),
    "GET /v1/nodes": (OK, OK, OK, OK, UNKNOWN, UNKNOWN),
    "GET /v1/nodes/devices": (OK, OK, OK, OK, UNKNOWN, UNKNOWN),
    "POST /v1/nodes/{node}/cordon": (OK, DENIED, DENIED, DENIED, UNKNOWN, UNKNOWN),
    "POST /v1/nodes/{node}/drain": (OK, DENIED, DENIED, DENIED, UNKNOWN, UNKNOWN),
    # Emulated devices cannot be divided.
    "POST /v1/nodes/{node}/mig": (409, DENIED, DENIED, DENIED, UNKNOWN, UNKNOWN),
    # After the drain, since this removes the node.
    "DELETE /v1/nodes/{node}": (OK, DENIED, DENIED, DENIED, UNKNOWN, UNKNOWN),
    "POST /v1/nodes/{node}/restore": (409, DENIED, DENIED, DENIED, UNKNOWN, UNKNOWN),
    "POST /v1/nodes/{node}/return": (OK, DENIED, DENIED, DENIED, UNKNOWN, UNKNOWN),
    "POST /v1/tokens": (OK, DENIED, DENIED, DENIED, UNKNOWN, UNKNOWN),
    "GET /v1/tokens": (OK, DENIED, DENIED, DENIED, UNKNOWN, UNKNOWN),
    "DELETE /v1/tokens/{token_id}": (OK, DENIED, DENIED, DENIED, UNKNOWN, UNKNOWN),
    "POST /v1/tokens/{token_id}/rotate": (OK, DENIED, DENIED, DENIED, UNKNOWN, UNKNOWN),
    "GET /v1/audit": (OK, DENIED, DENIED, DENIED, UNKNOWN, UNKNOWN),
    "GET /v1/audit/verify": (OK, DENIED, DENIED, DENIED, UNKNOWN, UNKNOWN),
    # Users log in there before they have a token; this server has no provider.
    "GET /v1/oidc": (HIDDEN, HIDDEN, HIDDEN, HIDDEN, HIDDEN, HIDDEN),
    # The body of a login holds the token; this one is invalid.
    "POST /v1/session": (UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN),
    "GET /v1/session": (OK, OK, OK, OK, UNKNOWN, UNKNOWN),
    # A logout changes the browser only.
    "DELETE /v1/session": (OK, OK, OK, OK, OK, OK),
    "GET /v1/about": (OK, OK, OK, OK, UNKNOWN, UNKNOWN),
    "GET /v1/advice": (OK, DENIED, DENIED, OK, UNKNOWN, UNKNOWN),
    "GET /v1/speeds": (OK, OK, OK, OK, UNKNOWN, UNKNOWN),
    "GET /v1/speeds/measured": (OK, OK, OK, OK, UNKNOWN, UNKNOWN),
    "GET /v1/speeds/pairs": (OK, OK, OK, OK, UNKNOWN, UNKNOWN),
    "PUT /v1/speeds/table": (OK, DENIED, DENIED, DENIED, UNKNOWN, UNKNOWN),
    # Nothing was measured.
    "DELETE /v1/speeds/measured": (422, DENIED, DENIED, DENIED, UNKNOWN, UNKNOWN),
    "GET /v1/policy": (OK, OK, OK, OK, UNKNOWN, UNKNOWN),
    "GET /v1/policy/names": (OK, OK, OK, OK, UNKNOWN, UNKNOWN),
    "GET /v1/policy/audit": (OK, DENIED, DENIED, OK, UNKNOWN, UNKNOWN),
    "GET /v1/policy/trades": (OK, DENIED, DENIED, OK, UNKNOWN, UNKNOWN),
    # The request is not valid: no simulation runs.
    "POST /v1/simulations": (422, 422, 422, DENIED, UNKNOWN, UNKNOWN),
    "GET /v1/simulations": (OK, OK, OK, DENIED, UNKNOWN, UNKNOWN),
    "GET /v1/simulations/{id_}/report": (HIDDEN, HIDDEN, HIDDEN, DENIED, UNKNOWN, UNKNOWN),
    "POST /v1/simulations/{id_}/cancel": (HIDDEN, HIDDEN, HIDDEN, DENIED, UNKNOWN, UNKNOWN),
    "POST /v1/what-if": (OK, DENIED, DENIED, DENIED, UNKNOWN, UNKNOWN),
    "GET /v1/limits": (OK, DENIED, DENIED, OK, UNKNOWN, UNKNOWN),
    "PUT /v1/limits": (OK, DENIED, DENIED, DENIED, UNKNOWN, UNKNOWN),
    "PUT /v1/policy": (OK, DENIED, DENIED, DENIED, UNKNOWN, UNKNOWN),
    "GET /v1/instance": (OK, DENIED, DENIED, OK, UNKNOWN, UNKNOWN),
    "GET /v1/events": (OK, OK, OK, OK, UNKNOWN, UNKNOWN),
    "GET /metrics": (OK, DENIED, DENIED, OK, UNKNOWN, UNKNOWN),
    "GET /healthz": (OK, OK, OK, OK, OK, OK),
    "GET /readyz": (OK, OK, OK, OK, OK, OK),
}
QUERIES = {
    "PUT /v1/code-snapshots/{snapshot_id}": "?offset=0&size=2",
    "GET /v1/searches/trials": "?tenant=own&name=lr",
}
BODIES: dict[str, dict[str, object]] = {
    "PUT /v1/code-snapshots/{snapshot_id}": {},
    "POST /v1/jobs": {"command": ["true"], "workload": "small", "tenant": "own"},
    "POST /v1/jobs/batch": {"jobs": [{"command": ["true"]}], "common": {"tenant": "own"}},
    "POST /v1/jobs/changes": {"action": "cancel", "jobs": ["no-such-job"]},
    "PATCH /v1/jobs/{job_id}": {"priority": 1},
    "POST /v1/leases/{lease}/renew": {"rank": 0, "started": 0, "steps": 0},
    "PUT /v1/tenants/{tenant_id}": {"id": "new", "weight": 2.0},
    "POST /v1/nodes/{node}/mig": {"gpu": 0, "profiles": ["1g.18gb"]},
    "PUT /v1/policy": {"round_s": 29.0},
    "POST /v1/what-if": {"devices": {"v100": 4}},
    "POST /v1/simulations": {"policies": ["max-min"], "speeds": "/etc/passwd"},
    "PUT /v1/speeds/table": {"speeds": "workload,gang,accelerator,steps_per_s\nnew,1,v100,3\n"},
    "PUT /v1/limits": {"requests_per_s": 999.0},
    "PUT /v1/secrets/{name}": {"value": "hunter2"},
    "POST /v1/session": {"token": "fl_0123_nonsense"},
    "POST /v1/tokens": {"name": "x", "role": "viewer"},
    "POST /v1/tokens/{token_id}/rotate": {"overlap_s": 0},
}
