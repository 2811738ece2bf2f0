"""The arguments of httpx for a server and for a call."""

import logging
import os
import ssl
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

from stromboli.client import credentials, errors
from stromboli.client.address import Address, find
from stromboli.client.operations import calls

_logger = logging.getLogger("stromboli.client")
ANSWER_WITHIN_S = 30.0
"""Time limit of a response in seconds, sufficient for a busy machine."""
_NOT_TLS = "wrong version number"
"""Part of OpenSSL's error message for a server that answers an https request in plain text."""
OBJECT_WITHIN_S = 0.5
"""Additional seconds for each written object: 600 jobs took a busy laptop 40 s."""


def address(url_or_address: str | Address | None) -> Address:
    """The server of these arguments (``address.find``). Raises ClientError."""
    return (
        url_or_address if isinstance(url_or_address, Address) else find(url_or_address, os.environ)
    )


def credential_files(
    server: Address,
    token: credentials.Token | None,
    token_file: str | Path | None,
    ca_file: str | Path | None,
) -> dict[str, Any]:
    """The credentials for ``httpx_options``: files of the server's context if neither arguments nor
    the environment set others."""
    is_set = token or token_file or any(map(os.environ.get, credentials.TOKENS))
    return {
        "token": token,
        "token_file": token_file if is_set else server.token_file or None,
        "ca_file": ca_file or os.environ.get(credentials.CA_FILE) or server.ca_file or None,
    }


IDLE_S = 2.0
"""Idle time after which a connection is not used again: shorter than the 5 s after which the server
closes it. A request on a connection that the server is closing fails."""


def httpx_options(
    base_url: str,
    response_timeout_s: float,
    token: credentials.Token | None = None,
    token_file: str | Path | None = None,
    ca_file: str | Path | None = None,
) -> dict[str, Any]:
    """The arguments of an httpx client. No proxy is used for this machine itself. Raises
    ClientError for a token that must not be sent there, or a CA file that cannot be read."""
    is_loopback = urlsplit(base_url).hostname in credentials.LOOPBACK
    options = {
        "base_url": base_url,
        "timeout": response_timeout_s,
        "trust_env": not is_loopback,
        "limits": httpx.Limits(  # the other limits are httpx's defaults
            max_connections=100, max_keepalive_connections=20, keepalive_expiry=IDLE_S
        ),
    }
    if urlsplit(base_url).scheme == "http":
        # No certificate is needed for http: loading the system's takes 30 ms. Without any, a
        # redirect to https would fail, not pass unchecked.
        options["verify"] = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if (authority := credentials.certificate_authority(ca_file)) is not None:
        options["verify"] = authority
    # Needed without a token, too: with a trusted environment httpx would use credentials of
    # ~/.netrc.
    options["auth"] = credentials.authentication(base_url, token, token_file) or httpx.Auth()
    return options


def request(call: calls.Call[Any]) -> dict[str, Any]:
    """The call as arguments of httpx's ``request``. Raises EmptyNameError for an empty name, which
    would change the path to another resource.
    """
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
    """The time limit of a call in seconds; it grows with the number of written objects, and with
    the computing time ``work_s``."""
    return response_timeout_s + call.work_s + OBJECT_WITHIN_S * max(call.objects - 1, 0)


def unreachable(server: Address, error: Exception, within_s: float) -> errors.UnreachableError:
    """An error of httpx as an UnreachableError, which names the source of the URL."""
    if isinstance(error, httpx.TimeoutException):
        why = f"no answer within {within_s:g} s"
    else:  # without the prefix "[Errno 111] "
        why = str(error).partition("] ")[2] or str(error) or type(error).__name__
    if _NOT_TLS in why:
        return errors.UnreachableError(
            server.what, "it does not speak TLS", "write http:// instead of https://"
        )
    # Only a refused connection means that no server listens.
    start = "start one with: strom up"
    next_step = start if "refused" in why else f"check the address, or {start}"
    return errors.UnreachableError(server.what, why, next_step)


def log_warning(text: str) -> None:
    """Log a warning of the server about an object that it accepted."""
    _logger.warning("%s", text)


TROUBLE = (httpx.TransportError, httpx.InvalidURL)
