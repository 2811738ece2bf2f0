"""What protects viewers: headers of every response, and the checks of every request.

1. **Host** names this server, or is loopback (DNS rebinding).
2. **Origin** and **Sec-Fetch-Site** of a request that changes something are this server's.
3. Forms carry the session's ``csrf`` value.
4. **Content-Security-Policy** without inline scripts and styles: even if a job's text reached a
   page unescaped, it could not execute.

Sources: Fetch standard, Fetch Metadata Request Headers, Content Security Policy Level 3.
"""

import ipaddress
from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

from stromboli.shared import loopback_token

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS: Mapping[str, str] = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    # Not `no-referrer`: with it, browsers send `Origin: null` with forms.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}
READS = frozenset({"GET", "HEAD"})
SAME_SITE = frozenset({"same-origin", "none"})


def refusal(method: str, headers: Mapping[str, str], hosts: Sequence[str]) -> str:
    """Why a request is refused; empty if it is not."""
    host = headers.get("host", "")
    if not _is_own(host, hosts):
        return f"{host[:100]!r} is not a name of this console (STROM_CONSOLE_HOSTS adds names)"
    if method in READS:
        return ""
    origin = headers.get("origin")
    if origin is not None and urlsplit(origin).netloc.lower() != host.lower():
        return f"a page of {origin[:100]!r} may not send forms here"
    if headers.get("sec-fetch-site", "none") not in SAME_SITE:
        return "a page of another site may not send forms here"
    return ""


def is_foreign_navigation(headers: Mapping[str, str]) -> bool:
    """Whether a link on another site led to this request, so that the browser omitted the
    ``SameSite=Strict`` cookie."""
    is_page = headers.get("sec-fetch-mode") == "navigate"
    return is_page and headers.get("sec-fetch-site") in ("cross-site", "same-site")


def _is_own(host: str, hosts: Sequence[str]) -> bool:
    try:
        name = (urlsplit(f"//{host}").hostname or "").rstrip(".")
    except ValueError:
        return False
    if name in hosts or name in loopback_token.HOSTS:
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
