"""The OpenAPI 3.1 description of the REST API: Litestar's document, completed.

Adds the schema of errors, the body of a bulk request, event streams and examples.
"""

import inspect
from typing import Any

import msgspec
from litestar import Request
from litestar.openapi import OpenAPIConfig
from litestar.openapi.plugins import JsonRenderPlugin

from stromboli.admission import problems
from stromboli.shared.api import kinds

DESCRIPTION = """Jobs and queues of a batch system. Objects are Kubernetes' own JSON. Errors are \
problem+json (RFC 9457) with every violation and its path. Streams below `/v1/watch` are \
server-sent events: `added` for every existing object, `synced`, then `added`, `modified`, \
`deleted`; `reset` means that the stream begins again. Send the last id as `Last-Event-ID` to \
resume. A server with accounts requires a bearer token (401) and the rights of RBAC: a 403 names \
every missing right."""
NDJSON, JSON, EVENTS = "application/x-ndjson", "application/json", "text/event-stream"
Document = dict[str, Any]

JOB: Document = {
    "apiVersion": kinds.JOBS.api_version,
    "kind": kinds.JOBS.kind,
    "metadata": {"name": "train"},
    "spec": {
        "queue": "default",
        "minAvailable": 2,
        "tasks": [
            {
                "name": "worker",
                "replicas": 2,
                "template": {
                    "spec": {
                        "restartPolicy": "Never",
                        "containers": [
                            {
                                "name": "main",
                                "image": "busybox",
                                "command": ["sleep", "10"],
                                "resources": {"requests": {"cpu": "1"}},
                            }
                        ],
                    }
                },
            }
        ],
    },
}
QUEUE: Document = {
    "apiVersion": kinds.QUEUES.api_version,
    "kind": kinds.QUEUES.kind,
    "metadata": {"name": "research"},
    "spec": {"weight": 1},
}
PROBLEM: Document = {
    "type": "about:blank",
    "title": "Unprocessable Entity",
    "status": 422,
    "detail": "spec.minAvailable: 3 pods must start together and the tasks have 2; at most 2",
    "violations": [
        {
            "path": "spec.minAvailable",
            "reason": "3 pods must start together and the tasks have 2",
            "expected": "at most 2",
        }
    ],
}
BODIES: dict[str, Document] = {
    "/v1/apply": {"objects": [QUEUE, JOB]},
    "/v1/check": {"objects": [JOB]},
    "/v1/namespaces/{namespace}/jobs": JOB,
    "/v1/namespaces/{namespace}/jobs/{name}/commands": {"action": "RestartJob"},
    "/v1/namespaces/{namespace}/jobs/{name}/scale": {"task": "worker", "replicas": 4},
    "/v1/namespaces/{namespace}/jobs/{name}/what-if": {"queue": "research", "nodes": 2},
    "/v1/namespaces/{namespace}/pods/{name}/eviction": {"uid": "0d3f", "gracePeriodSeconds": 30},
    "/v1/queues": QUEUE,
}
"""Path -> an example of its request body."""
EVENT: Document = {
    "type": "object",
    "description": "One event of the stream. `data` is the object, `id` is where to resume.",
    "properties": {
        "event": {"enum": ["added", "modified", "deleted", "reset", "synced"]},
        "data": {"type": "string", "contentMediaType": JSON},
        "id": {"type": "string"},
    },
    "required": ["event", "data"],
}
STREAM = """id: 417
event: modified
data: {"kind": "Job", "metadata": {"name": "train"}}

"""
_ERROR = {
    "description": "Rejected or failed, with the reason and every violation.",
    "content": {
        problems.MEDIA_TYPE: {
            "schema": {"$ref": "#/components/schemas/Problem"},
            "example": PROBLEM,
        }
    },
}


def complete(schema: Document) -> Document:
    """Litestar's document, completed by the parts that Litestar cannot derive."""
    openapi_document: Document = msgspec.json.decode(msgspec.json.encode(schema))
    openapi_document["components"]["schemas"]["Problem"] = _problem()
    for path, operations in openapi_document["paths"].items():
        for operation in operations.values():
            operation["tags"] = [_tag(path)]
            for parameter in operation.get("parameters", ()):
                _plain(parameter)
            responses = operation["responses"]
            for status in [status for status in responses if status >= "400"]:
                del responses[status]
            responses["default"] = _ERROR
        if path.startswith("/v1/watch/"):
            operations["get"]["responses"]["200"]["content"] = {
                EVENTS: {"schema": EVENT, "example": STREAM}
            }
        if path in BODIES:
            operations["post"]["requestBody"]["content"][JSON]["example"] = BODIES[path]
    # Authentication is needed if the server has accounts: without them the first alternative
    # applies.
    openapi_document["components"]["securitySchemes"] = {
        "token": {"type": "http", "scheme": "bearer"}
    }
    openapi_document["security"] = [{}, {"token": []}]
    line = msgspec.json.encode(JOB).decode()
    openapi_document["paths"]["/v1/bulk"]["post"]["requestBody"] = {
        "required": True,
        "content": {NDJSON: {"schema": {"type": "string"}, "example": f"{line}\n"}},
    }
    return openapi_document


def _plain(parameter: Document) -> None:
    """Make an optional parameter not nullable: a URL has no null."""
    schema = parameter["schema"]
    for option in schema.pop("oneOf", ()):
        if option["type"] != "null":
            schema.update(option)
    schema.pop("description", None)
    for noise in ("deprecated", "allowEmptyValue", "allowReserved"):
        parameter.pop(noise, None)


def _problem() -> Document:
    (schema,), components = msgspec.json.schema_components(
        [problems.Problem], ref_template="#/components/schemas/{name}"
    )
    del schema
    # Python before 3.13 keeps the indentation of docstrings.
    problem_schema: Document = components["Problem"]
    return problem_schema | {"description": inspect.getdoc(problems.Problem)}


def _tag(path: str) -> str:
    parts = [part for part in path.split("/")[2:] if not part.startswith("{")]
    if parts[0] == "watch":
        return "watch"
    return "jobs" if "jobs" in parts else parts[0] if parts[0] != "namespaces" else parts[-1]


class _OpenApiRenderer(JsonRenderPlugin):
    """Litestar's renderer for the OpenAPI document, completed by ``complete``."""

    def render(self, request: Request[Any, Any, Any], openapi_schema: Document) -> bytes:
        """Render the completed OpenAPI document as JSON."""
        return super().render(request, complete(openapi_schema))


CONFIG = OpenAPIConfig(
    title="Stromboli",
    version="v1",
    description=DESCRIPTION,
    render_plugins=[_OpenApiRenderer(path=["/openapi.json", "/"])],
)
