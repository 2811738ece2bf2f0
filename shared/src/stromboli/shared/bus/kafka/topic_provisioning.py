"""Provisions topics: creates missing topics, compares the settings of existing ones, and alters
settings if that cannot lose a needed record.
"""

from collections.abc import Mapping
from typing import Any

import structlog
from aiokafka import admin
from aiokafka import errors as kafka_errors
from aiokafka.admin import config_resource

from stromboli.shared import topics
from stromboli.shared.bus.kafka import clients, settings

_log = structlog.get_logger(__name__)

_ONLY_RAISED = ("retention.ms", "max.message.bytes")
"""Settings that are only raised, never lowered: an operator may retain more records than we
configure, and lowering a setting would lose records.
"""
_SET_ON_TOPIC = 1
"""Kafka's config source of a value that is set on the topic itself."""


async def ensure_topics(
    client: admin.AIOKafkaAdminClient, kafka_settings: settings.KafkaSettings
) -> None:
    """Create missing topics, and report and repair settings that differ. Raises kafka errors and
    ExternalError.
    """
    wanted = {topic.full_name(kafka_settings.cluster_name): topic for topic in topics.ALL}
    present = set(await client.list_topics())
    missing = [name for name in wanted if name not in present]
    if missing:
        await _create(client, kafka_settings, {name: wanted[name] for name in missing})
    existing = {name: topic for name, topic in wanted.items() if name in present}
    if existing:
        await _compare(client, existing)


async def _create(
    client: admin.AIOKafkaAdminClient,
    kafka: settings.KafkaSettings,
    missing: Mapping[str, topics.Topic],
) -> None:
    answer = await client.create_topics(
        [
            admin.NewTopic(name, 1, kafka.replication_factor, topic_configs=dict(topic.settings))
            for name, topic in missing.items()
        ],
        timeout_ms=int(kafka.request_timeout_s * 1000),
    )
    for name, code, reason in answer.topic_errors:
        error = kafka_errors.for_code(code)
        if error is kafka_errors.TopicAlreadyExistsError:
            continue  # another service created it, with the same settings
        if error is not kafka_errors.NoError:
            raise clients.translate_error(f"create topic {name}", error(reason))
        _log.info("topic created", topic=name)


async def _compare(client: admin.AIOKafkaAdminClient, existing: Mapping[str, topics.Topic]) -> None:
    for described in await client.describe_topics(list(existing)):
        if len(described["partitions"]) != 1:
            _log.warning(
                "topic has several partitions; only partition 0 is used",
                topic=described["topic"],
                partitions=len(described["partitions"]),
            )
    resources = [
        config_resource.ConfigResource(config_resource.ConfigResourceType.TOPIC, name)
        for name in existing
    ]
    for answer in await client.describe_configs(resources):
        for code, reason, _, name, entries in answer.resources:
            if code:
                _log.warning("topic settings not readable", topic=name, reason=reason)
                continue
            await _repair(client, name, existing[name].settings, entries)


async def _repair(
    client: admin.AIOKafkaAdminClient,
    name: str,
    wanted: Mapping[str, str],
    entries: list[Any],
) -> None:
    current_values = {entry[0]: entry[1] for entry in entries}
    changes = {}
    for key, value in wanted.items():
        if current_values.get(key) == value:
            continue
        is_safe = can_alter(key, current_values.get(key), value)
        _log.warning(
            "topic setting differs",
            topic=name,
            setting=key,
            found=current_values.get(key),
            wanted=value,
            altered=is_safe,
        )
        if is_safe:
            changes[key] = value
    if not changes:
        return
    # This request replaces all settings of the topic, so it repeats the unchanged ones.
    kept = {entry[0]: entry[1] for entry in entries if entry[3] == _SET_ON_TOPIC}
    resource = config_resource.ConfigResource(
        config_resource.ConfigResourceType.TOPIC, name, configs=kept | changes
    )
    for answer in await client.alter_configs([resource]):
        for code, reason, *_ in answer.resources:
            if code:
                _log.warning("topic settings not altered", topic=name, reason=reason)


def can_alter(key: str, current: str | None, wanted: str) -> bool:
    """Whether changing ``key`` from ``current`` to ``wanted`` loses no needed record."""
    if key == "cleanup.policy":
        # A topic that we compact needs only the newest record of each key, so compaction loses no
        # needed record. Any other change of the policy may delete records by age.
        return wanted == "compact"
    if key in _ONLY_RAISED:
        # in Kafka, -1 means "no limit"
        return current is not None and current != "-1" and int(current) < int(wanted)
    return True
