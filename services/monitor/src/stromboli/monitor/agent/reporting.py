"""Sends reports and heartbeats to the monitor over HTTP."""

import hashlib
import http.client
import ssl
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

from stromboli.shared import errors

TIMEOUT_S = 10.0
LONGEST_WORDS = 300


def digest(body: bytes) -> str:
    """The digest by which heartbeats identify a report."""
    return hashlib.blake2b(body, digest_size=16).hexdigest()


class MonitorClient:
    """The monitor at a URL. The token is read for each request, because Kubernetes rotates the
    file.
    """

    def __init__(self, url: str, node: str, token_file: str = "", ca_file: str = "") -> None:
        self._node_url = f"{url.rstrip('/')}/v1/nodes/{urllib.parse.quote(node, safe='')}"
        self._url = f"{self._node_url}/topology"
        self._token_file = token_file
        self._tls = (
            ssl.create_default_context(cafile=ca_file or None) if url.startswith("https:") else None
        )

    def report(self, body: bytes) -> None:
        """Send the whole report. Raises ExternalError."""
        self._call("PUT", self._url, body)

    def send_heartbeat(self, named: str) -> bool:
        """Send a heartbeat; returns whether the monitor has the report with this digest. Raises
        ExternalError.
        """
        try:
            self._call("POST", f"{self._url}/alive?digest={named}", b"")
        except errors.ConflictError:
            return False
        return True

    def report_usage(self, body: bytes) -> None:
        """Send the loads of the node (an encoded ``NodeLoad``). Raises ExternalError."""
        self._call("PUT", f"{self._node_url}/usage", body)

    def report_pod_usage(self, body: bytes) -> bytes:
        """Send what the node's pods use (an encoded ``PodUsageReport``); returns the encoded
        ``PodUids``. Raises ExternalError.
        """
        return self._call("PUT", f"{self._node_url}/podusage", body)

    def exchange_data(self, body: bytes) -> bytes:
        """Send the report of the node's data cache (an encoded ``DataObserved``); returns the
        encoded ``DataWanted``. Raises ExternalError.
        """
        return self._call("PUT", f"{self._node_url}/data", body)

    def _call(self, method: str, url: str, body: bytes) -> bytes:
        what = f"{method} {url}"
        request = urllib.request.Request(url, data=body, method=method)
        request.add_header("Content-Type", "application/json")
        try:
            if self._token_file:
                token = Path(self._token_file).read_text().strip()
                request.add_header("Authorization", f"Bearer {token}")
            with urllib.request.urlopen(request, timeout=TIMEOUT_S, context=self._tls) as answer:
                payload: bytes = answer.read()
                return payload
        except urllib.error.HTTPError as error:
            detail = error.read(LONGEST_WORDS).decode(errors="replace")
            reason = f"{error.code} {detail or error.reason}"
            if error.code == 409:
                raise errors.ConflictError(what, reason) from None
            raise errors.TransientError(what, reason) from None
        except (OSError, http.client.HTTPException) as error:
            raise errors.UnavailableError(what, str(error)) from None
