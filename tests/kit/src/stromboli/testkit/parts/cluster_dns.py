"""A name server for the pods of real kubelets: names of pods and headless Services, from pods.

    python -m stromboli.testkit.parts.cluster_dns ADDRESS KUBECONFIG

It answers A queries for ``<hostname>.<subdomain>.<namespace>.svc.cluster.local`` and for
``<service>.<namespace>.svc.cluster.local`` with the addresses of the pods that are ready, as
cluster DNS does for a headless Service that does not publish addresses of pods that are not. It
treats every Service as headless, for no kube-proxy runs: clients connect to the ports of the pods.
It reads the pods and the Service for each query, because tests have few. Other names do not exist.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import struct
import sys
from pathlib import Path
from typing import Any, ClassVar

from stromboli.shared.runtime import runtime
from stromboli.testkit.parts.api import Api
from stromboli.testkit.parts.kubernetes import ApiServer
from stromboli.testkit.parts.part import Part

DOMAIN = "cluster.local"
PORT = 53
SERVING = "names are served"
_A, _INTERNET, _TTL_S = 1, 1, 1
_NAME_ERROR, _SERVER_FAILURE = 3, 2
_RESPONSE, _AUTHORITATIVE, _RECURSION_DESIRED = 0x8000, 0x0400, 0x0100
_HEADER = struct.Struct("!6H")
_QUESTION_NAME = 0xC00C
"""Compressed name in a response: a pointer to the name of the question after the header."""


class ClusterDns(Part):
    """The name server as a process at ``address``."""

    name: ClassVar[str] = "cluster-dns"
    port_count: ClassVar[int] = 0

    def __init__(self, state: Path, address: str, server: ApiServer) -> None:
        super().__init__(state)
        self._address = address
        self._server = server

    def command(self) -> list[str]:
        """The command line of this module."""
        kubeconfig = self._server.kubeconfig()
        return [sys.executable, "-m", __name__, self._address, str(kubeconfig)]

    async def is_ready(self) -> bool:
        """Whether it accepts queries."""
        return SERVING in self.process.logged()


def question(query: bytes) -> tuple[str, int, bytes]:
    """Name in lower case, type and bytes of the only question. Raises ValueError, IndexError or
    struct.error for other messages."""
    if _HEADER.unpack_from(query)[2] != 1:
        raise ValueError("not one question")
    labels, at = [], _HEADER.size
    while length := query[at]:
        labels.append(query[at + 1 : at + 1 + length].decode("ascii").lower())
        at += 1 + length
    kind, _ = struct.unpack_from("!2H", query, at + 1)
    return ".".join(labels), kind, query[_HEADER.size : at + 5]


def response(query: bytes, requested: bytes, addresses: list[str], code: int) -> bytes:
    """The message that answers a query with these addresses, or with an error code."""
    identifier, flags, *_ = _HEADER.unpack_from(query)
    flags = _RESPONSE | _AUTHORITATIVE | (flags & _RECURSION_DESIRED) | code
    header = _HEADER.pack(identifier, flags, 1, len(addresses), 0, 0)
    records = (
        struct.pack("!3HLH", _QUESTION_NAME, _A, _INTERNET, _TTL_S, 4)
        + ipaddress.IPv4Address(address).packed
        for address in addresses
    )
    return header + requested + b"".join(records)


def place_of(name: str) -> tuple[str, str, str] | None:
    """Hostname (empty for a Service's own name), subdomain and namespace; None for other names."""
    words = name.removesuffix(f".svc.{DOMAIN}").split(".")
    if not name.endswith(f".svc.{DOMAIN}") or len(words) not in (2, 3):
        return None
    *host, subdomain, namespace = words
    return "".join(host), subdomain, namespace


def addresses_of(pods: list[dict[str, Any]], hostname: str, subdomain: str) -> list[str]:
    """Addresses of the ready pods of a headless Service, or of the one with a hostname."""
    return [
        pod["status"]["podIP"]
        for pod in pods
        if pod["spec"].get("subdomain") == subdomain
        and hostname in ("", pod["spec"].get("hostname"))
        and is_served(pod)
    ]


def addresses_of_service(pods: list[dict[str, Any]], service: dict[str, Any]) -> list[str]:
    """Addresses of the pods that a Service selects: the ready ones, unless it publishes others."""
    selector = service["spec"].get("selector")
    if not selector:
        return []
    publishes = service["spec"].get("publishNotReadyAddresses", False)
    return [
        pod["status"]["podIP"]
        for pod in pods
        if selector.items() <= pod["metadata"].get("labels", {}).items()
        and is_served(pod, publishes_not_ready=publishes)
    ]


def is_served(pod: dict[str, Any], *, publishes_not_ready: bool = False) -> bool:
    """Whether names resolve to a pod: it has an address, is not being deleted, and is ready."""
    if not pod["status"].get("podIP") or "deletionTimestamp" in pod["metadata"]:
        return False
    return publishes_not_ready or any(
        (condition["type"], condition["status"]) == ("Ready", "True")
        for condition in pod["status"].get("conditions", ())
    )


class _Server(asyncio.DatagramProtocol):
    def __init__(self, api: Api, group: asyncio.TaskGroup) -> None:
        self._api = api
        self._group = group
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def datagram_received(self, data: bytes, peer: tuple[Any, ...]) -> None:
        self._group.create_task(self._answer(data, peer))

    async def _answer(self, query: bytes, peer: tuple[Any, ...]) -> None:
        try:
            name, kind, requested = question(query)
        except (ValueError, IndexError, struct.error):
            return
        addresses, code = [], _NAME_ERROR
        try:
            if (place := place_of(name)) is not None:
                addresses = await self._addresses(*place)
                code = 0 if addresses else _NAME_ERROR
        except Exception as error:  # one query must not end the server
            _log(f"{name}: {error}")
            code = _SERVER_FAILURE
        known = addresses if kind == _A else []
        self._transport.sendto(response(query, requested, known, code), peer)

    async def _addresses(self, hostname: str, name: str, namespace: str) -> list[str]:
        path = f"/api/v1/namespaces/{namespace}"
        found = await self._api.get(f"{path}/pods")
        if hostname or not await self._api.exists(f"{path}/services/{name}"):
            return addresses_of(found["items"], hostname, name)
        service = await self._api.get(f"{path}/services/{name}")
        return addresses_of_service(found["items"], service)


async def _serve(address: str, document: dict[str, Any]) -> None:
    cluster, user = document["clusters"][0]["cluster"], document["users"][0]["user"]
    authority = Path(cluster["certificate-authority"])
    async with (
        Api(cluster["server"], user["token"], authority) as api,
        asyncio.TaskGroup() as group,
    ):
        loop = asyncio.get_running_loop()
        await loop.create_datagram_endpoint(lambda: _Server(api, group), local_addr=(address, PORT))
        _log(SERVING)
        await asyncio.Event().wait()


def _log(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    configured = json.loads(Path(sys.argv[2]).read_text())
    runtime.run(lambda: _serve(sys.argv[1], configured))
