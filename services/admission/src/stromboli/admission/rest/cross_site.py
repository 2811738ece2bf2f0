"""Rejects requests that a browser sends on behalf of another site.

A web page may make its reader's browser send requests to loopback. Three independent rules prevent
that:

1. **Host** names this server, or is a loopback address. Otherwise a name of the attacker that
   resolves to loopback (DNS rebinding) would be same-origin.
2. **Origin**, if present, is this server; so is **Sec-Fetch-Site**, which browsers also send with
   reads, streams and images. ``null`` is a foreign origin.
3. The content type of bodies is **JSON**. Content types that a page may send without a preflight
   (CORS-safelisted: forms, ``text/plain``) are rejected.

Sources: Fetch standard (Origin, CORS-safelisted request headers), Fetch Metadata Request Headers.
"""

import ipaddress
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from litestar.connection import ASGIConnection
from litestar.exceptions import HTTPException
from litestar.handlers import BaseRouteHandler

from stromboli.admission.rest.authorization import Guard

MEDIA = "media_types"
"""In a route's ``opt``: the accepted content types of its body, if not only JSON."""
JSON = ("application/json",)
JSON_LINES = {MEDIA: ("application/x-ndjson", *JSON)}
"""For a route's ``opt``: one JSON object per line."""
BODIES = frozenset({"POST", "PUT", "PATCH"})
SAME_SITE = frozenset({"same-origin", "none"})
"""``none``: the user typed the address."""
FORBIDDEN, WRONG_MEDIA, MISDIRECTED = 403, 415, 421


class RejectedRequestError(HTTPException):
    """A request that breaks one of the rules."""

    def __init__(self, status_code: int, detail: str) -> None:
        super().__init__(detail, status_code=status_code)


def guard(hosts: Sequence[str] = ()) -> Guard:
    """A guard of all three rules. ``hosts``: the names of this server, with any port; empty: any
    name is accepted, for servers with a certificate and tokens.
    """

    async def check(
        connection: ASGIConnection[Any, Any, Any, Any], handler: BaseRouteHandler
    ) -> None:
        check_host(connection.headers, hosts)
        check_origin(connection.headers)
        method = str(connection.scope.get("method"))
        expected = handler.opt.get(MEDIA, JSON)
        check_media_type(method, connection.headers, expected)

    return check


def check_host(headers: Mapping[str, str], hosts: Sequence[str]) -> None:
    """Check the header Host (rule 1). Raises RejectedRequestError."""
    name = _hostname(headers.get("host", ""))
    if hosts and name not in hosts and not _is_loopback(name):
        raise RejectedRequestError(
            MISDIRECTED,
            f"Host {headers.get('host', '')[:100]!r} is not a name of this server; "
            f"its names are {', '.join(hosts)} (STROM_ADMISSION_REST_HOSTS adds names)",
        )


def check_origin(headers: Mapping[str, str]) -> None:
    """Check the headers Origin and Sec-Fetch-Site (rule 2). Raises RejectedRequestError."""
    site = headers.get("sec-fetch-site", "none")
    origin = headers.get("origin")
    host = headers.get("host", "")
    if origin is not None and (not host or urlsplit(origin).netloc.lower() != host.lower()):
        raise RejectedRequestError(FORBIDDEN, f"a page of {origin[:100]!r} may not send requests")
    if site not in SAME_SITE:
        raise RejectedRequestError(FORBIDDEN, "a page of another site may not send requests")


def check_media_type(method: str, headers: Mapping[str, str], expected: Sequence[str]) -> None:
    """Check the content type of the body (rule 3). Raises RejectedRequestError."""
    length = headers.get("content-length", "0")
    if method not in BODIES or (length == "0" and "transfer-encoding" not in headers):
        return
    declared = headers.get("content-type", "").partition(";")[0].strip().lower()
    if declared not in expected:
        media_type = f"declared as {declared[:100]!r}" if declared else "not declared"
        raise RejectedRequestError(
            WRONG_MEDIA, f"the body is {media_type}; send Content-Type: {' or '.join(expected)}"
        )


def _is_loopback(name: str) -> bool:
    """Whether it is a loopback address such as 127.0.0.2, which needs no name resolution."""
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _hostname(host: str) -> str:
    try:
        return (urlsplit(f"//{host}").hostname or "").rstrip(".")
    except ValueError:
        return ""
