"""Rules of the Kafka adapter that need no broker."""

import asyncio

import msgspec
import pytest
from aiokafka import errors as kafka_errors

from stromboli.shared import errors, topics
from stromboli.shared.bus.kafka import KafkaSettings, clients, topic_provisioning
from stromboli.shared.runtime import settings
from stromboli.testkit import records


class Service(msgspec.Struct, frozen=True, kw_only=True):
    kafka: KafkaSettings = KafkaSettings()


def test_settings_come_from_the_environment_and_hide_the_password() -> None:
    environment = {
        "STROM_KAFKA_BOOTSTRAP": "a:9092, b:9092",
        "STROM_KAFKA_CLUSTER_NAME": "blue",
        "STROM_KAFKA_SECURITY": "SASL_SSL",
        "STROM_KAFKA_SASL_USERNAME": "strom",
        "STROM_KAFKA_SASL_PASSWORD": "secret",
        "STROM_KAFKA_REPLICATION_FACTOR": "3",
    }
    read = settings.load(Service, "controller", environment).kafka
    assert (read.bootstrap, read.cluster_name, read.replication_factor) == (
        ("a:9092", "b:9092"),
        "blue",
        3,
    )
    assert settings.shown(read)["sasl_password"] == "***"
    assert "secret" not in str(settings.shown(read))


def test_an_unknown_security_protocol_is_rejected() -> None:
    with pytest.raises(settings.SettingsError, match="STROM_KAFKA_SECURITY"):
        settings.load(Service, "controller", {"STROM_KAFKA_SECURITY": "plain"})


def test_every_client_identifies_itself_and_verifies_the_brokers_certificate() -> None:
    given = KafkaSettings(
        bootstrap=("a:9093",),
        cluster_name="blue",
        security="SASL_SSL",
        sasl_username="u",
        sasl_password="p",
    )
    arguments = clients.connection(given)
    assert arguments["client_id"] == "stromboli-blue"
    assert arguments["ssl_context"].check_hostname
    assert (arguments["sasl_plain_username"], arguments["sasl_plain_password"]) == ("u", "p")
    assert clients.connection(KafkaSettings())["ssl_context"] is None


@pytest.mark.parametrize(
    ("raised", "means"),
    [
        (kafka_errors.KafkaConnectionError("refused"), errors.UnavailableError),
        (kafka_errors.KafkaTimeoutError(), errors.UnavailableError),
        (kafka_errors.NotEnoughReplicasError(), errors.UnavailableError),
        (kafka_errors.ProducerFenced(), errors.UnavailableError),
        (ConnectionResetError("reset"), errors.UnavailableError),
        (TimeoutError(), errors.UnavailableError),
        (kafka_errors.TopicAuthorizationFailedError("t"), errors.ForbiddenError),
        (kafka_errors.SaslAuthenticationFailed("bad password"), errors.ForbiddenError),
        (kafka_errors.MessageSizeTooLargeError(), errors.TooLargeError),
        (kafka_errors.InvalidReplicationFactorError("3 > 1"), errors.PermanentError),
    ],
    ids=lambda value: getattr(value, "__name__", type(value).__name__),
)
def test_client_errors_are_translated_to_errors_with_a_next_step(
    raised: BaseException, means: type[errors.ExternalError]
) -> None:
    translated = clients.translate_error("append to t", raised)
    assert type(translated) is means
    assert translated.what == "append to t"
    assert translated.reason


async def test_patience_ends_where_trying_again_is_useless() -> None:
    calls = 0

    async def call() -> int:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise kafka_errors.KafkaConnectionError("refused")
        if calls == 2:
            return 7
        raise kafka_errors.GroupAuthorizationFailedError("g")

    async with asyncio.timeout(records.DEADLINE_S):
        assert await clients.retry_until_available("read", call) == 7
        with pytest.raises(errors.ForbiddenError):
            await clients.retry_until_available("read", call)
    assert calls == 3


@pytest.mark.parametrize(
    ("setting", "found", "wanted", "can"),
    [
        ("cleanup.policy", "delete", "compact", True),
        ("cleanup.policy", "compact,delete", "compact", True),
        ("cleanup.policy", "compact", "delete", False),
        ("retention.ms", "1000", "2000", True),
        ("retention.ms", "2000", "1000", False),
        ("retention.ms", "-1", "1000", False),
        ("max.message.bytes", "1048588", str(topics.RECORD_BYTES), True),
        ("max.message.bytes", "99999999", str(topics.RECORD_BYTES), False),
        ("max.message.bytes", None, str(topics.RECORD_BYTES), False),
        ("segment.ms", "604800000", "600000", True),
        ("min.cleanable.dirty.ratio", "0.5", "0.1", True),
    ],
)
def test_a_topic_is_altered_only_if_no_relevant_record_is_lost(
    setting: str, found: str | None, wanted: str, can: bool
) -> None:
    assert topic_provisioning.can_alter(setting, found, wanted) is can
