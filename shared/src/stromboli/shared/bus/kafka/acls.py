"""The ACLs that each service needs on the broker, and the tool that creates them.

    python -m stromboli.shared.bus.kafka.acls            print the ACLs
    python -m stromboli.shared.bus.kafka.acls --apply    create missing ACLs on the broker

The broker is configured by ``STROM_KAFKA_...``; its user needs the right to alter ACLs. Each
service has its own principal: ``User:stromboli-SERVICE``, or the one given by ``--principal
SERVICE=User:NAME``. The ACLs are derived from ``topics.ALL``: only the writer of a topic may append
to it, so that no other client of the broker can forge a decision, and only admission reads
submissions, because they contain tokens. ``--principal outside=User:NAME`` adds an external client:
it may append submissions and read the answers. The tool never removes ACLs.
"""

import argparse
import asyncio
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, get_args

import msgspec
from aiokafka import admin
from aiokafka import errors as kafka_errors
from aiokafka.protocol.admin import CreateAclsRequest

from stromboli.shared import topics
from stromboli.shared.bus.kafka import clients
from stromboli.shared.bus.kafka.settings import KafkaSettings
from stromboli.shared.runtime import settings

SERVICES: tuple[topics.Service, ...] = get_args(topics.Service)
PRINCIPALS: Mapping[str, str] = {name: f"User:stromboli-{name}" for name in SERVICES}
READ_BY_ADMISSION = frozenset({topics.SUBMISSIONS.name})
"""Topics that only admission may read."""
GROUPS: Mapping[str, str] = {"admission": "admission.submissions", "controller": "controller"}
"""Service -> the consumer group whose offsets it commits."""
ANY_HOST = "*"
# Kafka's numbers: org.apache.kafka.common.acl.AclOperation, resource.ResourceType, PatternType.
OPERATIONS = {
    "Read": 3,
    "Write": 4,
    "Create": 5,
    "AlterConfigs": 11,
    "Describe": 8,
    "DescribeConfigs": 10,
}
RESOURCES = {"Topic": 2, "Group": 3}
PATTERNS = {"Literal": 3, "Prefixed": 4}
ALLOW = 3


class Acl(msgspec.Struct, frozen=True, order=True):
    """One ACL: an operation that a principal may perform on resources."""

    principal: str
    resource: str
    name: str
    pattern: str
    operation: str


def table(cluster_name: str, principals: Mapping[str, str] = PRINCIPALS) -> tuple[Acl, ...]:
    """The ACLs of all services in ``principals``, and of ``outside`` clients if they are in it."""
    acls: set[Acl] = set()
    for service, principal in principals.items():
        acls |= set(
            _of_client(cluster_name, principal)
            if service == topics.OUTSIDE
            else _of_service(cluster_name, service, principal)
        )
    return tuple(sorted(acls))


def _of_service(cluster_name: str, service: str, principal: str) -> Iterator[Acl]:
    for operation in (
        "Create",
        "Describe",
        "DescribeConfigs",
    ):  # the service that starts first creates topics
        yield Acl(principal, "Topic", f"{cluster_name}.", "Prefixed", operation)
    for topic in topics.ALL:
        name = topic.full_name(cluster_name)
        own = topic.writer in (service, None)
        if topic.name not in READ_BY_ADMISSION or service == "admission":
            yield Acl(principal, "Topic", name, "Literal", "Read")
        if own:
            yield Acl(principal, "Topic", name, "Literal", "Write")
            yield Acl(principal, "Topic", name, "Literal", "AlterConfigs")
    if service in GROUPS:
        yield Acl(principal, "Group", f"{cluster_name}.{GROUPS[service]}", "Literal", "Read")


def _of_client(cluster_name: str, principal: str) -> Iterator[Acl]:
    submissions, reviews = (
        it.full_name(cluster_name) for it in (topics.SUBMISSIONS, topics.REVIEWS)
    )
    yield Acl(principal, "Topic", submissions, "Literal", "Write")
    yield Acl(principal, "Topic", submissions, "Literal", "Describe")
    yield Acl(principal, "Topic", reviews, "Literal", "Read")


def text(acls: Sequence[Acl]) -> str:
    """The ACLs as text, one per line."""
    return "".join(
        f"{it.principal}\tAllow\t{it.operation}\t{it.resource}:{it.pattern}:{it.name}\n"
        for it in acls
    )


async def apply(kafka: KafkaSettings, acls: Sequence[Acl]) -> None:
    """Create the ACLs on the broker; existing ones are unchanged. Raises ExternalError."""
    client = admin.AIOKafkaAdminClient(**clients.connection(kafka))
    try:
        await client.start()
        for acl in acls:
            await _create(client, acl)
    except kafka_errors.KafkaError as error:
        raise clients.translate_error("apply ACLs", error) from None
    finally:
        await client.close()


async def _create(client: admin.AIOKafkaAdminClient, acl: Acl) -> None:
    request = CreateAclsRequest(
        RESOURCES[acl.resource],
        acl.name,
        PATTERNS[acl.pattern],
        acl.principal,
        ANY_HOST,
        OPERATIONS[acl.operation],
        ALLOW,
    )
    # aiokafka has the protocol's request, and no method of its admin client for it.
    answer: Any = await client._send_to_controller(request)
    for code, reason in answer.creation_responses:
        if code:
            raise kafka_errors.for_code(code)(reason)


class _Settings(msgspec.Struct, frozen=True, kw_only=True):
    kafka: KafkaSettings


def _arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m stromboli.shared.bus.kafka.acls")
    parser.add_argument("--apply", action="store_true", help="create the ACLs on the broker")
    parser.add_argument(
        "--principal",
        action="append",
        default=[],
        metavar="SERVICE=User:NAME",
        help="the principal of a service, or of clients that submit (outside)",
    )
    arguments = parser.parse_args(words)
    arguments.principals = dict(PRINCIPALS)
    for each in arguments.principal:
        service, _, principal = each.partition("=")
        if service not in (*SERVICES, topics.OUTSIDE) or not principal.startswith("User:"):
            parser.error(f"--principal {each}: write SERVICE=User:NAME")
        arguments.principals[service] = principal
    return arguments


def main(words: Sequence[str] | None = None) -> int:
    """The command-line tool. Returns the exit status."""
    arguments = _arguments(words)
    kafka_settings = settings.load(_Settings, "acls", os.environ).kafka
    acls = table(kafka_settings.cluster_name, arguments.principals)
    sys.stdout.write(text(acls))
    if arguments.apply:
        asyncio.run(apply(kafka_settings, acls))
    return 0


if __name__ == "__main__":
    sys.exit(main())
