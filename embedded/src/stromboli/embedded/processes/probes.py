"""Executes probes of containers and reads ConfigMaps and Secrets."""

import asyncio
import base64
import binascii
import ssl
from collections.abc import Mapping

import msgspec

from stromboli.embedded.processes import launcher_client
from stromboli.embedded.processes.core import environment
from stromboli.embedded.processes.core import pod as pods
from stromboli.shared import decoding


class _Data(msgspec.Struct, frozen=True, rename="camel"):
    data: dict[str, str] | None = None
    binary_data: dict[str, str] | None = None


def decode_data(raw: bytes, *, is_secret: bool) -> Mapping[str, bytes]:
    """Return keys and values of a ConfigMap or Secret. Raises MissingError if they cannot be
    decoded.
    """
    read = decoding.from_json(raw, _Data)
    text, encoded = read.data or {}, read.binary_data or {}
    if is_secret:
        text, encoded = {}, text
    try:
        decoded = {name: base64.b64decode(value) for name, value in encoded.items()}
    except binascii.Error as error:
        raise environment.MissingError(f"a value is not base64: {error}") from None
    return {name: value.encode() for name, value in text.items()} | decoded


async def run_probe(
    probe: pods.Probe,
    container: pods.Container,
    address: str,
    running: launcher_client.ContainerProcess | None,
) -> tuple[bool, str]:
    """Return whether a probe succeeded, and its output."""
    timeout_s = float(max(probe.timeout_seconds, 1))
    if running is None:
        return False, "the container is not running"
    if probe.exec is not None:
        return await running.execute(probe.exec.command, timeout_s)
    try:
        async with asyncio.timeout(timeout_s):
            if probe.tcp_socket is not None:
                port = _port(probe.tcp_socket.port, container)
                return await _tcp_connect(probe.tcp_socket.host or address, port)
            if probe.http_get is not None:
                return await _http_get(probe.http_get, container, address)
    except TimeoutError:
        return False, f"no answer within {timeout_s:g}s"
    except (OSError, ValueError) as error:
        return False, str(error)
    return True, "process nodes do not support this kind of probe"


async def _tcp_connect(host: str, port: int) -> tuple[bool, str]:
    _, writer = await asyncio.open_connection(host, port)
    writer.close()
    return True, ""


async def _http_get(
    requested: pods.HttpGet, container: pods.Container, address: str
) -> tuple[bool, str]:
    """Send one request; only the status line of the response counts."""
    host, port = requested.host or address, _port(requested.port, container)
    tls = _unverified_tls() if requested.scheme == "HTTPS" else None
    reader, writer = await asyncio.open_connection(host, port, ssl=tls)
    try:
        path = requested.path or "/"
        writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        words = (await reader.readline()).decode(errors="replace").split()
    finally:
        writer.close()
    status = int(words[1]) if len(words) > 1 and words[1].isdecimal() else 0
    return 200 <= status < 400, " ".join(words) or "no answer"


def _unverified_tls() -> ssl.SSLContext:
    """Return a TLS context that does not verify certificates, like that of a kubelet."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def _port(port: int | str, container: pods.Container) -> int:
    """Resolve a port by number or name. Raises ValueError for an unknown name."""
    if isinstance(port, int):
        return port
    for each in container.ports:
        if each.name == port:
            return each.container_port
    raise ValueError(f"the container has no port {port}")
