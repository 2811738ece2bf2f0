"""The table of rights on a broker with its authorizer: enough for each service, and no more."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import aiokafka
import pytest
import pytest_asyncio
from aiokafka import errors as kafka_errors

from stromboli.admission import service as admission
from stromboli.controller.core.store import subscriptions
from stromboli.history.core import folding
from stromboli.scheduler import engine
from stromboli.shared import topics
from stromboli.shared.bus.kafka import KafkaBus, KafkaSettings, acls, clients
from stromboli.testkit import records
from stromboli.testkit.parts import ports, tools
from stromboli.testkit.parts.kafka import Kafka

pytest_plugins = ["stromboli.testkit.parts.fixtures"]
pytestmark = [
    pytest.mark.real,
    pytest.mark.asyncio(loop_scope="module"),
]
ADMIN, CLIENT, STRANGER = "operator", "trainer", "stranger"
MECHANISM, PASSWORD = "SCRAM-SHA-512", "a-password-of-the-test"
SERVICES = acls.SERVICES
READS: dict[str, tuple[topics.Topic, ...]] = {
    "admission": (*admission.FOLDED, topics.BATCH_EVENTS, topics.SUBMISSIONS),
    "controller": (
        *subscriptions.FOLDED,
        topics.DECISIONS,
        topics.BATCH_EVENTS,
        topics.BATCH_STATE,
        topics.OUTCOMES,
    ),
    "history": folding.READ,
    "monitor": (*topics.MATERIALIZED, topics.SYNC),
    "scheduler": (*engine.TOPICS, topics.LEASE),
}


class Guarded(Kafka):
    """A broker with an authorizer, and a listener on which clients have accounts."""

    port_count = 3

    @property
    def guarded(self) -> str:
        """bootstrap.servers of the listener with accounts."""
        return f"{ports.LOOPBACK}:{self.ports[2]}"

    def accounts(self) -> list[str]:
        """For all who are tried."""
        names = [ADMIN, CLIENT, STRANGER, *(f"stromboli-{service}" for service in SERVICES)]
        return [
            word
            for name in names
            for word in ("--add-scram", f"{MECHANISM}=[name={name},password={PASSWORD}]")
        ]

    def properties(self) -> dict[str, str]:
        """The listener without accounts is the broker's own."""
        own = super().properties()
        module = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        return {
            **own,
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": f"User:ANONYMOUS;User:{ADMIN}",
            "listeners": f"{own['listeners']},GUARDED://{self.guarded}",
            "advertised.listeners": f"{own['advertised.listeners']},GUARDED://{self.guarded}",
            "listener.security.protocol.map": (
                f"{own['listener.security.protocol.map']},GUARDED:SASL_PLAINTEXT"
            ),
            "listener.name.guarded.sasl.enabled.mechanisms": MECHANISM,
            f"listener.name.guarded.{MECHANISM.lower()}.sasl.jaas.config": module,
        }

    def as_(self, user: str) -> KafkaSettings:
        """How a user connects."""
        return KafkaSettings(
            bootstrap=(self.guarded,),
            cluster_name="guarded",
            security="SASL_PLAINTEXT",
            sasl_username=user,
            sasl_password=PASSWORD,
        )


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def broker(
    real_tools: tools.Tools, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Guarded]:
    """With the table applied, as the tool does it, twice; topics are created by the services."""
    folder: Path = tmp_path_factory.mktemp("guarded")
    started = Guarded(real_tools, folder)
    await started.start()
    try:
        principals = {**acls.PRINCIPALS, str(topics.OUTSIDE): f"User:{CLIENT}"}
        for _ in range(2):
            await acls.apply(started.as_(ADMIN), acls.table("guarded", principals))
        async with KafkaBus(started.as_("stromboli-scheduler")):
            yield started
    finally:
        await started.stop()


@pytest.mark.parametrize("service", SERVICES)
async def test_each_service_has_the_acls_that_it_needs(
    broker: Guarded, service: topics.Service
) -> None:
    """It opens, which appends; writes dead letters; reads all that it folds; commits its place."""
    async with KafkaBus(broker.as_(f"stromboli-{service}")) as bus:
        writer = await bus.open_writer(service, "one")
        await writer.append(records.dead_letter(topics.NODES))
        async with contextlib.aclosing(bus.materialize(READS[service])) as batches:
            async for batch in batches:
                if batch.caught_up:
                    break
        group = acls.GROUPS.get(service)
        if group is not None:
            topic = topics.SUBMISSIONS if service == "admission" else topics.DECISIONS
            async with bus.consume(topic, group):
                pass


async def refused(broker: Guarded, user: str, topic: topics.Topic) -> bool:
    """Whether a user may not append to a topic."""
    producer = aiokafka.AIOKafkaProducer(**clients.connection(broker.as_(user)))
    await producer.start()
    try:
        await producer.send_and_wait(topic.full_name("guarded"), b"{}", key=b"k")
    except kafka_errors.TopicAuthorizationFailedError:
        return True
    finally:
        await producer.stop()
    return False


@pytest.mark.parametrize("user", [*(f"stromboli-{it}" for it in SERVICES), CLIENT, STRANGER])
async def test_no_principal_can_append_to_a_topic_of_another_writer(
    broker: Guarded, user: str
) -> None:
    for topic in (topics.DECISIONS, topics.SYNC, topics.OUTCOMES, topics.SUBMISSIONS):
        writers = {f"stromboli-{topic.writer}"}
        writers = {CLIENT} if topic.writer == topics.OUTSIDE else writers
        assert await refused(broker, user, topic) == (user not in writers), topic.name


@pytest.mark.parametrize(
    ("user", "topic"),
    [
        ("stromboli-scheduler", topics.SUBMISSIONS),
        ("stromboli-controller", topics.SUBMISSIONS),
        (CLIENT, topics.SUBMISSIONS),
        (CLIENT, topics.PODS),
        (STRANGER, topics.PODS),
    ],
)
async def test_no_principal_can_read_topics_of_others(
    broker: Guarded, user: str, topic: topics.Topic
) -> None:
    """Submissions bear tokens; snapshots have what all tenants run."""
    consumer = aiokafka.AIOKafkaConsumer(**clients.connection(broker.as_(user)))
    partition = aiokafka.TopicPartition(topic.full_name("guarded"), 0)
    consumer.assign([partition])
    with pytest.raises(kafka_errors.TopicAuthorizationFailedError):
        await _read(consumer, partition)


async def _read(consumer: aiokafka.AIOKafkaConsumer, partition: aiokafka.TopicPartition) -> None:
    try:
        await consumer.start()
        await consumer.seek_to_beginning(partition)
        await consumer.getone()
    finally:
        await consumer.stop()
