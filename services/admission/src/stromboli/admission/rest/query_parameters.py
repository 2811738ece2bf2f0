"""Query parameters: a request with an unknown one is refused.

An ignored ``labelSelector`` would return all objects, and the client would take them for the
selected ones.
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
"""Paths of ours; probes and scrapers of others may ask for more than they get."""


async def guard(connection: ASGIConnection[Any, Any, Any, Any], handler: BaseRouteHandler) -> None:
    """Raises RejectedError that names each unknown parameter and the known ones."""
    scope = connection.scope
    if not scope["path"].startswith(_API_PREFIX) or scope.get("method") == "OPTIONS":
        return
    known = {asked for kind, asked in _model(handler).values() if kind == "query"}
    expected = f"one of {', '.join(sorted(known))}" if known else "nothing behind a question mark"
    unknown = sorted(set(connection.query_params) - known)
    if unknown:
        raise RejectedError(
            tuple(
                Violation(
                    path=name[:MAX_SHOWN_LENGTH],
                    reason="is nothing that this request takes",
                    expected=expected,
                )
                for name in unknown
            )
        )


def wire_name(handler: object, name: str) -> str:
    """A parameter's name as it stands in a request, from its name in our code."""
    if isinstance(handler, BaseRouteHandler):
        return _model(handler).get(name, ("", name))[1]
    return name


@functools.cache
def _model(handler: BaseRouteHandler) -> Mapping[str, tuple[str, str]]:
    """Name in our code -> (query or header, name in a request)."""
    if not isinstance(handler, HTTPRouteHandler):
        return {}
    model = handler.create_kwargs_model(path_parameters={})
    return {
        one.field_name: (one.param_type.value, one.field_alias)
        for one in (*model.expected_query_params, *model.expected_header_params)
    }
