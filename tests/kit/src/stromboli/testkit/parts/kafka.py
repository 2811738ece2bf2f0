"""Apache Kafka, one KRaft node that is broker and controller, for clients on loopback.

Settings differ from a default broker where it matters to tests: topics are not created
automatically, consumers join without a rebalance delay, sessions may be short so that a takeover is
fast, and the internal topics have one partition and one replica, since there is one node and each
partition costs start-up time.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import ClassVar

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError

from stromboli.testkit.parts import ports
from stromboli.testkit.parts.part import Part
from stromboli.testkit.parts.process import Process
from stromboli.testkit.parts.tools import Tools

CLUSTER_ID = "c3Ryb21ib2xpLXRlc3QtMQ"  # any 16 bytes in base64: there is only one node
FORMAT_TIMEOUT_S = 120
ADMIN_TIMEOUT_MS = 3000
JVM = (
    "-Xms256m",
    "-Xmx512m",  # ten thousand records a second leave it idle; a default JVM takes a quarter of RAM
    "-XX:+UseSerialGC",  # one small heap on a shared machine: no helper threads
    "-XX:TieredStopAtLevel=1",  # ready seconds sooner; the last tenth of throughput is not needed
    "-Xshare:auto",
    "-Dfile.encoding=UTF-8",
    "-Djava.awt.headless=true",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dorg.slf4j.simpleLogger.log.kafka.server=info",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd'T'HH:mm:ss.SSS",
    # Without a configuration of log4j, Kafka logs a warning.
    "-Dlog4j2.StatusLogger.level=OFF",
)


class Kafka(Part):
    """A broker at `bootstrap`; data in its state directory survives stop and kill."""

    name: ClassVar[str] = "kafka"
    port_count: ClassVar[int] = 2

    def __init__(self, tools: Tools, state: Path, *, detached: bool = False) -> None:
        """``state``: the folder for log and data. Does not start the broker."""
        super().__init__(state, detached=detached)
        self._tools = tools

    @property
    def bootstrap(self) -> str:
        """The value of bootstrap.servers for clients, once the broker has started."""
        return f"{ports.LOOPBACK}:{self.ports[0]}"

    def properties(self) -> dict[str, str]:
        """The broker's configuration file as a mapping."""
        listener, controller = (f"{ports.LOOPBACK}:{port}" for port in self.ports[:2])
        return {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{controller}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"CLIENT://{listener},CONTROLLER://{controller}",
            "advertised.listeners": f"CLIENT://{listener}",
            "inter.broker.listener.name": "CLIENT",
            "listener.security.protocol.map": "CLIENT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": str(self.state / "data"),
            "auto.create.topics.enable": "false",
            "default.replication.factor": "1",
            "num.partitions": "1",
            "offsets.topic.num.partitions": "1",
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.num.partitions": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "share.coordinator.state.topic.num.partitions": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            # After a kill the broker waits until the session of its previous run has expired.
            "broker.session.timeout.ms": "3000",
            "broker.heartbeat.interval.ms": "500",
            "group.initial.rebalance.delay.ms": "0",
            "group.min.session.timeout.ms": "500",
            # Two megabytes of index suffice for any test; the default of 128 MB is a quarter of the
            # heap.
            "log.cleaner.dedupe.buffer.size": str(16 * 1024 * 1024),
            "log.cleaner.backoff.ms": "1000",
        }

    def accounts(self) -> list[str]:
        """Options of the storage formatter that create accounts; this broker has none."""
        return []

    async def prepare(self) -> None:
        """Write the configuration and, the first time, format the data directory (1 s)."""
        lines = (f"{key}={value}\n" for key, value in self.properties().items())
        self._file.write_text("".join(lines))
        if not (self.state / "data" / "meta.properties").exists():
            await self._format()

    @property
    def _file(self) -> Path:
        return self.state / "server.properties"

    async def _format(self) -> None:
        arguments = ("format", "-t", CLUSTER_ID, "-c", str(self._file), *self.accounts())
        command = self._java("kafka.tools.StorageTool", *arguments)
        formatter = Process("kafka-format", command, self.state / "format.log")
        formatter.start()
        try:
            async with asyncio.timeout(FORMAT_TIMEOUT_S):
                status = await formatter.wait()
        finally:
            await formatter.kill()
        if status != 0:
            raise formatter.failed(f"ended with status {status}")

    def _java(self, *arguments: str) -> list[str]:
        return [str(self._tools.java), *JVM, "-cp", f"{self._tools.libs}/*", *arguments]

    def command(self) -> list[str]:
        """The broker's command line."""
        return self._java("kafka.Kafka", str(self._file))

    async def is_ready(self) -> bool:
        """True once the broker is in the cluster's metadata: it can lead partitions then."""
        if not ports.accepts_connections(self.ports[0]):
            return False  # otherwise the client below would log errors for each attempt
        admin = AIOKafkaAdminClient(
            bootstrap_servers=self.bootstrap, request_timeout_ms=ADMIN_TIMEOUT_MS
        )
        try:
            await admin.start()
            return bool((await admin.describe_cluster())["brokers"])
        except KafkaError:
            return False
        finally:
            await admin.close()
