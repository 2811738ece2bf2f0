"""Rejects requests with unknown query parameters.

With an ignored ``labelSelector`` the response would contain all objects, and the client would take
them for the selected ones.
"""

import functools
from collections.abc import Mapping
from typing import Any

from litestar.connection import ASGIConnection
from litestar.handlers import BaseRouteHandler, HTTPRouteHandler

from stromboli.admission.review.submitted_objects import RejectedError
from stromboli.shared.messages.admission import Violation

MAX_SHOWN_LENGTH = 100
_API_PREFIX = "/v1/"
"""Paths that are checked; probes and scrapers may send other parameters to health routes."""


async def guard(connection: ASGIConnection[Any, Any, Any, Any], _: BaseRouteHandler) -> None:
    """Raises RejectedError that names each unknown parameter and the known ones."""
    scope = connection.scope
    if not scope["path"].startswith(_API_PREFIX) or scope.get("method") == "OPTIONS":
        return
    # Not the argument: that is a copy for this request, and the cache would keep every copy.
    model = _model(connection.route_handler)
    known = {requested for kind, requested in model.values() if kind == "query"}
    expected = f"one of {', '.join(sorted(known))}" if known else "no query parameters"
    unknown = sorted(set(connection.query_params) - known)
    if unknown:
        raise RejectedError(
            tuple(
                Violation(
                    path=name[:MAX_SHOWN_LENGTH],
                    reason="is not a parameter of this request",
                    expected=expected,
                )
                for name in unknown
            )
        )


def wire_name(handler: object, name: str) -> str:
    """A parameter's name in requests, from its Python name."""
    if isinstance(handler, BaseRouteHandler):
        return _model(handler).get(name, ("", name))[1]
    return name


@functools.cache
def _model(handler: BaseRouteHandler) -> Mapping[str, tuple[str, str]]:
    """Python name -> (query or header, name in requests)."""
    if not isinstance(handler, HTTPRouteHandler):
        return {}
    model = handler.create_kwargs_model(path_parameters={})
    return {
        one.field_name: (one.param_type.value, one.field_alias)
        for one in (*model.expected_query_params, *model.expected_header_params)
    }
