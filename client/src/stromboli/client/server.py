"""Where a program finds the server, and how it sends a call there."""

import os
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

from stromboli.client import calls, credentials, errors

DEFAULT_URL = "http://127.0.0.1:8480"
"""Where admission listens unless told otherwise."""
VARIABLE = "STROM_SERVER"
LOOPBACK = credentials.LOOPBACK
ANSWER_WITHIN_S = 30.0
"""A busy machine's seconds, not those of a good day."""
OBJECT_WITHIN_S = 0.5
"""How much longer for each object that is written: 600 jobs took a busy laptop 40 s."""


def url(given: str | None) -> str:
    """The base URL: the given one, else ``STROM_SERVER``, else this machine. Raises ValueError."""
    chosen = given or os.environ.get(VARIABLE) or DEFAULT_URL
    parts = urlsplit(chosen)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{chosen!r} is not a URL; write it with its scheme, as {DEFAULT_URL}")
    return chosen.rstrip("/")


def httpx_options(
    base_url: str,
    response_timeout_s: float,
    token: str | None = None,
    token_file: str | Path | None = None,
    ca_file: str | Path | None = None,
) -> dict[str, Any]:
    """What an httpx client is made with. No proxy is ever between a machine and itself. Raises
    ClientError for a token that must not go there, or an authority that cannot be read."""
    is_loopback = urlsplit(base_url).hostname in LOOPBACK
    found = {"base_url": base_url, "timeout": response_timeout_s, "trust_env": not is_loopback}
    if (authority := credentials.certificate_authority(ca_file)) is not None:
        found["verify"] = authority
    # Also without a token: with the environment trusted, httpx would take one from ~/.netrc.
    found["auth"] = credentials.authentication(base_url, token, token_file) or httpx.Auth()
    return found


def request(call: calls.Call[Any]) -> dict[str, Any]:
    """The call as arguments of httpx's ``request``. Raises UnnamedError for an empty name, with
    which the path would be that of something else."""
    if "//" in call.path or call.path.endswith("/"):
        raise errors.EmptyNameError(call.what, "a name is empty")
    headers = {"content-type": calls.JSON, **call.headers} if call.body else call.headers
    return {
        "method": call.method,
        "url": call.path,
        "params": call.query or None,
        "content": call.body or None,
        "headers": headers,
    }


def timeout_s(call: calls.Call[Any], response_timeout_s: float) -> float:
    """How long to wait for an answer: what is written object by object takes its time."""
    return response_timeout_s + OBJECT_WITHIN_S * max(call.objects - 1, 0)


def unreachable(base_url: str, error: Exception, within_s: float) -> errors.UnreachableError:
    """httpx's trouble in our words."""
    if isinstance(error, httpx.TimeoutException):
        why = f"no answer within {within_s:g} s"
    else:  # without the "[Errno 111] " before it
        why = str(error).partition("] ")[2] or str(error) or type(error).__name__
    return errors.UnreachableError(f"server {base_url}", why)


TROUBLE = (httpx.TransportError, httpx.InvalidURL)
