"""A small client of a real API server, for starters and tests; not one of our adapters.

Tests check our adapters with this client, so that they do not depend on the code under test.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import aiohttp

POLL_S = 0.05
REQUEST_TIMEOUT_S = 30
PATCH_TYPES = {
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",
}


class ApiError(Exception):
    """An error response of the API server, with its HTTP status and message."""

    def __init__(self, what: str, status: int, message: str) -> None:
        super().__init__(f"{what}: {status} {message}")
        self.status = status
        self.message = message


def tls_context(ca_file: Path) -> ssl.SSLContext:
    """A TLS context that trusts the API server's self-signed certificate."""
    return ssl.create_default_context(cafile=str(ca_file))


class Api:
    """Requests with one user's token: `async with Api(url, token, ca_file) as api`."""

    def __init__(self, url: str, token: str, ca_file: Path) -> None:
        """``token``: the user's. Connections are opened on entry."""
        self._url = url
        self._token = token
        self._ca_file = ca_file
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Api:
        """Open the connection pool."""
        self._session = aiohttp.ClientSession(
            base_url=self._url,
            headers={"Authorization": f"Bearer {self._token}"},
            connector=aiohttp.TCPConnector(ssl=tls_context(self._ca_file), limit=32),
            timeout=aiohttp.ClientTimeout(total=REQUEST_TIMEOUT_S),
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()

    async def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content_type: str = "application/json",
        params: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """The decoded response. Raises ApiError for status 400 and above, and aiohttp's errors for
        failed connections."""
        if self._session is None:
            raise RuntimeError("the client is used outside its `async with`")
        data = None if body is None else json.dumps(body)
        async with self._session.request(
            method, path, data=data, params=params, headers={"Content-Type": content_type}
        ) as answer:
            text = await answer.text()
            if answer.status >= 400:
                raise ApiError(f"{method} {path}", answer.status, _message(text))
        decoded: dict[str, Any] = json.loads(text) if text.startswith("{") else {"text": text}
        return decoded

    async def get(self, path: str) -> dict[str, Any]:
        """Read one object or list."""
        return await self.request("GET", path)

    async def create(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Post `body` to the collection at `path`."""
        return await self.request("POST", path, body)

    async def patch(self, path: str, body: Any, kind: str = "merge") -> dict[str, Any]:
        """Patch an object; `kind` is one of merge, json, strategic and apply."""
        return await self.request("PATCH", path, body, content_type=PATCH_TYPES[kind])

    async def delete(self, path: str, **params: str) -> dict[str, Any]:
        """Delete an object, with query parameters such as propagationPolicy."""
        return await self.request("DELETE", path, params=params)

    async def exists(self, path: str) -> bool:
        """Whether the object exists."""
        try:
            await self.get(path)
        except ApiError as error:
            if error.status == 404:
                return False
            raise
        return True

    async def until(
        self, path: str, holds: Callable[[dict[str, Any]], bool], timeout_s: float = 30.0
    ) -> dict[str, Any]:
        """Read the object until `holds` returns true and return it; TimeoutError after
        `timeout_s`.
        """
        async with asyncio.timeout(timeout_s):
            while True:
                found = await self.get(path)
                if holds(found):
                    return found
                await asyncio.sleep(POLL_S)

    async def until_gone(self, path: str, timeout_s: float = 30.0) -> None:
        """Return when the object does not exist; TimeoutError after `timeout_s`."""
        async with asyncio.timeout(timeout_s):
            while True:
                if not await self.exists(path):
                    return
                await asyncio.sleep(POLL_S)

    async def create_namespace(self, name: str, **labels: str) -> None:
        """Create a namespace and wait until it accepts pods."""
        metadata = {"name": name, "labels": labels}
        await self.create("/api/v1/namespaces", {"kind": "Namespace", "metadata": metadata})
        await self.until_namespace_takes_pods(name)

    async def until_namespace_takes_pods(self, name: str, timeout_s: float = 30.0) -> None:
        """Return once controllers have added the default service account and the CA's ConfigMap.

        Until then the API server refuses every pod in the namespace. TimeoutError after
        `timeout_s`.
        """
        for kind, added in (("serviceaccounts", "default"), ("configmaps", "kube-root-ca.crt")):
            await self.until(
                f"/api/v1/namespaces/{name}/{kind}",
                lambda found, added=added: any(  # type: ignore[misc]  # mypy and defaults
                    item["metadata"]["name"] == added for item in found["items"]
                ),
                timeout_s,
            )

    async def establish(self, definition: Mapping[str, Any]) -> None:
        """Create a CustomResourceDefinition and wait until its resource is served."""
        collection = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        await self.create(collection, definition)
        await self.until(f"{collection}/{definition['metadata']['name']}", _established)


def _established(definition: Mapping[str, Any]) -> bool:
    conditions = definition.get("status", {}).get("conditions") or []
    return any(c["type"] == "Established" and c["status"] == "True" for c in conditions)


def _message(text: str) -> str:
    try:
        return str(json.loads(text).get("message", text))
    except (ValueError, AttributeError):
        return text[:500]
