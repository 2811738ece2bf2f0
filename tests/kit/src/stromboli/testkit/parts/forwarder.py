"""Forwards connections that pods of real kubelets open to a server on loopback.

    python -m stromboli.testkit.parts.forwarder DEVICE ADDRESS PORT TARGET_PORT

There is no kube-proxy, because it would change the machine's packet filter rules. A forwarder
accepts connections to an address of the pods' bridge, from that bridge only, and copies their bytes
to a port on loopback, TLS included.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

from stromboli.shared.runtime import runtime
from stromboli.testkit.parts import ports
from stromboli.testkit.parts.part import Part

SERVING = "connections are forwarded"
CHUNK_BYTES = 65536


class Forwarder(Part):
    """Forwards from ``address`` and ``port`` on the bridge ``device`` to the port on loopback that
    ``target`` returns at the start."""

    name: ClassVar[str] = "forwarder"
    port_count: ClassVar[int] = 0

    def __init__(
        self, state: Path, device: str, address: str, port: int, target: Callable[[], int]
    ) -> None:
        super().__init__(state)
        self._words = [device, address, str(port)]
        self._target = target

    def command(self) -> list[str]:
        """The command line of this module."""
        return [sys.executable, "-m", __name__, *self._words, str(self._target())]

    async def is_ready(self) -> bool:
        """Whether it accepts connections."""
        return SERVING in self.process.logged()


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while chunk := await source.read(CHUNK_BYTES):
            target.write(chunk)
            await target.drain()
    target.close()


async def _serve(device: str, address: str, port: int, target: int) -> None:
    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            inner, outer = await asyncio.open_connection(ports.LOOPBACK, target)
        except OSError:  # the server is not running: the client's connection is closed
            writer.close()
            return
        await asyncio.gather(_copy(reader, outer), _copy(inner, writer))

    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    # Bridges of several runs may have the same address: each forwarder accepts connections of its
    # own bridge.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device.encode())
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((address, port))
    server = await asyncio.start_server(forward, sock=listener)
    sys.stdout.write(f"{SERVING}\n")
    sys.stdout.flush()
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    _device, _address, _port, _target = sys.argv[1:]
    runtime.run(lambda: _serve(_device, _address, int(_port), int(_target)))
