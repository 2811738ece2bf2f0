"""Topic ids: the id that a broker assigns to a topic when it creates it.

aiokafka implements versions of the metadata request that contain names only; topic ids came with
version 10 (KIP-516, Kafka 2.8). This module implements version 12, as defined by Kafka's
``MetadataRequest.json`` and ``MetadataResponse.json``.
"""

import uuid
from collections.abc import Sequence
from io import BytesIO
from typing import Any

import aiokafka.errors as kafka_errors
from aiokafka.protocol import api, types


class _Uuid(types.AbstractType[bytes]):  # type: ignore[misc]  # untyped package
    @classmethod
    def encode(cls, value: bytes) -> bytes:
        return value

    @classmethod
    def decode(cls, data: BytesIO) -> bytes:
        return data.read(16)


class _Response(api.Response):  # type: ignore[misc]  # untyped package
    API_KEY = 3
    API_VERSION = 12
    SCHEMA = types.Schema(
        ("throttle_time_ms", types.Int32),
        (
            "brokers",
            types.CompactArray(
                ("node_id", types.Int32),
                ("host", types.CompactString("utf-8")),
                ("port", types.Int32),
                ("rack", types.CompactString("utf-8")),
                ("tags", types.TaggedFields),
            ),
        ),
        ("cluster_id", types.CompactString("utf-8")),
        ("controller_id", types.Int32),
        (
            "topics",
            types.CompactArray(
                ("error_code", types.Int16),
                ("name", types.CompactString("utf-8")),
                ("topic_id", _Uuid),
                ("is_internal", types.Boolean),
                (
                    "partitions",
                    types.CompactArray(
                        ("error_code", types.Int16),
                        ("partition", types.Int32),
                        ("leader", types.Int32),
                        ("leader_epoch", types.Int32),
                        ("replicas", types.CompactArray(types.Int32)),
                        ("isr", types.CompactArray(types.Int32)),
                        ("offline", types.CompactArray(types.Int32)),
                        ("tags", types.TaggedFields),
                    ),
                ),
                ("authorized_operations", types.Int32),
                ("tags", types.TaggedFields),
            ),
        ),
        ("tags", types.TaggedFields),
    )


class _RequestStruct(api.RequestStruct):  # type: ignore[misc]  # untyped package
    FLEXIBLE_VERSION = True
    API_KEY = 3
    API_VERSION = 12
    RESPONSE_TYPE = _Response
    SCHEMA = types.Schema(
        (
            "topics",
            types.CompactArray(
                ("topic_id", _Uuid),
                ("name", types.CompactString("utf-8")),
                ("tags", types.TaggedFields),
            ),
        ),
        ("allow_auto_topic_creation", types.Boolean),
        ("include_topic_authorized_operations", types.Boolean),
        ("tags", types.TaggedFields),
    )


class _Request(api.Request[_RequestStruct]):  # type: ignore[misc]  # untyped package
    API_KEY = 3

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names

    def build(self, request_struct_class: type[_RequestStruct]) -> _RequestStruct:
        requested: list[tuple[bytes, str, dict[int, bytes]]]
        requested = [(bytes(16), name, {}) for name in self._names]
        return request_struct_class(
            topics=requested,
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=False,
            tags={},
        )


async def fetch_topic_ids(client: Any, names: Sequence[str]) -> dict[str, str]:
    """Topic name -> id, for existing topics. ``client``: an ``AIOKafkaClient``. Never creates a
    topic. Raises kafka errors.
    """
    node = client.get_random_node()
    if node is None:
        raise kafka_errors.NodeNotReadyError("no broker is known")
    answer = await client.send(node, _Request(names))
    topic_ids = {}
    for code, name, topic_id, *_ in answer.topics:
        if code == 0:
            topic_ids[name] = str(uuid.UUID(bytes=topic_id))
        elif kafka_errors.for_code(code) is not kafka_errors.UnknownTopicOrPartitionError:
            raise kafka_errors.for_code(code)(name)
    return topic_ids
