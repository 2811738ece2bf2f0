"""How TLS connections to a broker end that does not answer the close notification."""

import asyncio
import contextlib
import socket
import ssl
import struct
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from aiokafka import admin, conn

from stromboli.admission.webhooks import key_pairs
from stromboli.shared.bus import kafka
from stromboli.shared.bus.kafka import clients

HOST = "127.0.0.1"
NO_VERSIONS = struct.pack(">hi", 0, 0)
"""What the broker can do: no error, and nothing."""
FOR_EVER_S = 3600.0
"""What the client has for its end: what is not hung up waits so long, or as asyncio does."""
SOON_S = 25.0
"""Far above what it takes, below the half minute that asyncio waits for a goodbye."""


class SilentBroker:
    """A broker that reports its API versions once to each client and then reads nothing: neither
    requests nor the close notification of TLS.
    """

    def __init__(self, folder: Path) -> None:
        pair = key_pairs.make([HOST], datetime.now(UTC), timedelta(days=1))
        self.authority = folder / "broker.pem"
        self.authority.write_bytes(pair.key + pair.certificate)
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._tls.load_cert_chain(self.authority)
        self._listening = socket.create_server((HOST, 0))
        self._held: list[socket.socket] = []
        self._thread = threading.Thread(target=self._serve)

    @property
    def port(self) -> int:
        port: int = self._listening.getsockname()[1]
        return port

    def _serve(self) -> None:
        with contextlib.suppress(OSError):  # the end
            while True:
                plain, _ = self._listening.accept()
                line = self._tls.wrap_socket(plain, server_side=True)
                self._held.append(line)
                size, _, _, correlation = struct.unpack(">ihhi", line.recv(12))
                line.recv(size - 8)
                answer = struct.pack(">i", correlation) + NO_VERSIONS
                line.sendall(struct.pack(">i", len(answer)) + answer)

    @contextlib.contextmanager
    def serving(self) -> Iterator["SilentBroker"]:
        self._thread.start()
        try:
            yield self
        finally:
            self._listening.shutdown(socket.SHUT_RDWR)
            self._listening.close()
            self._thread.join()
            for line in self._held:
                line.close()


@pytest.fixture
def silent_broker(tmp_path: Path) -> Iterator[SilentBroker]:
    with SilentBroker(tmp_path).serving() as broker:
        yield broker


async def test_a_client_closes_when_the_broker_does_not_answer_the_close_notification(
    silent_broker: SilentBroker,
) -> None:
    """asyncio would wait for that for half a minute, and each reader that is closed with it."""
    settings = kafka.KafkaSettings(
        bootstrap=(f"{HOST}:{silent_broker.port}",),
        security="SSL",
        tls_ca_file=str(silent_broker.authority),
    )
    arguments = clients.connection(settings)
    client = admin.AIOKafkaAdminClient(**arguments)
    names = ("client_id", "security_protocol", "ssl_context")
    line = await conn.create_conn(
        HOST, silent_broker.port, **{name: arguments[name] for name in names}
    )
    client._client._conns["node"] = line
    async with asyncio.timeout(SOON_S):
        await clients.close_admin(client, FOR_EVER_S)
    assert not line.connected()
