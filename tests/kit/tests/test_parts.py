"""The real parts do what our adapters and services count on, also after a stop or a crash."""

from __future__ import annotations

import base64
import json
import ssl
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from stromboli.testkit.parts import kwok, ports
from stromboli.testkit.parts.api import Api, ApiError
from stromboli.testkit.parts.real import RealParts

pytest_plugins = ["stromboli.testkit.parts.fixtures"]
pytestmark = pytest.mark.real

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"


@pytest.fixture
async def api(real_parts: RealParts) -> AsyncIterator[Api]:
    async with real_parts.client() as client:
        yield client


async def create_topic(bootstrap: str, topic: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        await admin.create_topics([NewTopic(topic, num_partitions=1, replication_factor=1)])
    finally:
        await admin.close()


async def produce(bootstrap: str, topic: str, *values: bytes) -> None:
    async with AIOKafkaProducer(
        bootstrap_servers=bootstrap, acks="all", enable_idempotence=True
    ) as producer:
        for value in values:
            await producer.send_and_wait(topic, value)


async def read_all(bootstrap: str, topic: str) -> list[bytes]:
    partition = TopicPartition(topic, 0)
    async with AIOKafkaConsumer(bootstrap_servers=bootstrap) as consumer:
        consumer.assign([partition])
        await consumer.seek_to_beginning(partition)
        end = (await consumer.end_offsets([partition]))[partition]
        records: list[bytes] = []
        while len(records) < end:
            records.append((await consumer.getone()).value)
        return records


def config_map(name: str, **metadata: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **metadata}}


def owned_by(owner: dict[str, Any]) -> dict[str, str]:
    metadata = owner["metadata"]
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": metadata["name"],
        "uid": metadata["uid"],
    }


def bound_pod(name: str, node: str, **annotations: str) -> dict[str, Any]:
    containers = [{"name": "main", "image": "none"}]
    return {
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"nodeName": node, "containers": containers},
    }


async def test_produced_records_are_consumed_in_order(real_parts: RealParts) -> None:
    """A record sent with acks=all is read back, in order."""
    await create_topic(real_parts.kafka_bootstrap, "round-trip")
    await produce(real_parts.kafka_bootstrap, "round-trip", b"one", b"two")
    assert await read_all(real_parts.kafka_bootstrap, "round-trip") == [b"one", b"two"]


@pytest.mark.parametrize("end", ["stop", "kill"])
async def test_a_broker_that_starts_again_has_all_records(real_parts: RealParts, end: str) -> None:
    """Acknowledged records survive a stop and a SIGKILL, at the same address."""
    bootstrap, topic = real_parts.kafka_bootstrap, f"survives-{end}"
    await create_topic(bootstrap, topic)
    await produce(bootstrap, topic, b"kept")
    await getattr(real_parts.kafka, end)()
    assert not ports.accepts_connections(real_parts.kafka.ports[0])
    await real_parts.kafka.start()
    assert real_parts.kafka_bootstrap == bootstrap
    await produce(bootstrap, topic, b"and more")
    assert await read_all(bootstrap, topic) == [b"kept", b"and more"]


async def test_an_object_is_deleted_with_its_owner(api: Api) -> None:
    """The garbage collector follows owner references."""
    owner = await api.create(CONFIG_MAPS, config_map("owner"))
    await api.create(CONFIG_MAPS, config_map("owned", ownerReferences=[owned_by(owner)]))
    await api.delete(f"{CONFIG_MAPS}/owner")
    await api.until_gone(f"{CONFIG_MAPS}/owned")


async def test_a_namespace_is_deleted_with_its_objects(api: Api) -> None:
    """The namespace controller empties and finalizes a namespace."""
    await api.create("/api/v1/namespaces", {"metadata": {"name": "short-lived"}})
    await api.create("/api/v1/namespaces/short-lived/configmaps", config_map("inside"))
    await api.delete("/api/v1/namespaces/short-lived")
    await api.until_gone("/api/v1/namespaces/short-lived")


async def test_a_bound_pod_runs_and_a_deleted_pod_is_removed(api: Api) -> None:
    """KWOK plays the kubelet of a fake node."""
    [node] = await kwok.create_nodes(api, 1, prefix="runs")
    await api.create(PODS, bound_pod("runs", node))
    running = await api.until(f"{PODS}/runs", lambda pod: pod["status"]["phase"] == "Running")
    assert running["status"]["containerStatuses"][0]["ready"] is True
    await api.delete(f"{PODS}/runs")
    await api.until_gone(f"{PODS}/runs")


@pytest.mark.parametrize(("exit_code", "phase"), [("0", "Succeeded"), ("3", "Failed")])
async def test_a_pod_ends_according_to_its_annotations(
    api: Api, exit_code: str, phase: str
) -> None:
    """The annotations of simulated nodes hold on fake nodes too."""
    name = f"ends-{exit_code}"
    [node] = await kwok.create_nodes(api, 1, prefix=name)
    annotations = {"stromboli.sh/run-seconds": "0.2", "stromboli.sh/exit-code": exit_code}
    await api.create(PODS, bound_pod(name, node, **annotations))
    ended = await api.until(f"{PODS}/{name}", lambda pod: pod["status"]["phase"] == phase)
    terminated = ended["status"]["containerStatuses"][0]["state"]["terminated"]
    assert terminated["exitCode"] == int(exit_code)


async def test_a_pod_without_a_runtime_annotation_never_ends(api: Api) -> None:
    """Here a later pod with the annotation ends while an earlier one without it continues."""
    [node] = await kwok.create_nodes(api, 1, prefix="never-ends")
    await api.create(PODS, bound_pod("never-ends", node))
    await api.until(f"{PODS}/never-ends", lambda pod: pod["status"]["phase"] == "Running")
    await api.create(PODS, bound_pod("does-end", node, **{"stromboli.sh/run-seconds": "0.2"}))
    await api.until(f"{PODS}/does-end", lambda pod: pod["status"]["phase"] == "Succeeded")
    assert (await api.get(f"{PODS}/never-ends"))["status"]["phase"] == "Running"


async def test_a_user_without_rights_is_refused(real_parts: RealParts) -> None:
    """Tokens identify users and RBAC is enforced."""
    async with real_parts.client("stranger") as stranger:
        with pytest.raises(ApiError, match='User "stranger" cannot') as refused:
            await stranger.get(CONFIG_MAPS)
    assert refused.value.status == 403


@pytest.mark.parametrize("end", ["stop", "kill"])
async def test_an_api_server_that_starts_again_is_the_same(real_parts: RealParts, end: str) -> None:
    """Address, certificate, tokens and objects survive; KWOK and the controllers reconnect."""
    async with real_parts.client() as before:
        await before.create(CONFIG_MAPS, config_map(f"kept-{end}"))
    await getattr(real_parts.api_server, end)()
    await real_parts.api_server.start()
    async with real_parts.client() as after:
        owner = await after.get(f"{CONFIG_MAPS}/kept-{end}")
        [node] = await kwok.create_nodes(after, 1, prefix=f"after-{end}")
        pod = bound_pod(f"after-{end}", node)
        pod["metadata"]["ownerReferences"] = [owned_by(owner)]
        await after.create(PODS, pod)
        await after.until(f"{PODS}/after-{end}", lambda pod: pod["status"]["phase"] == "Running")
        await after.delete(f"{CONFIG_MAPS}/kept-{end}")
        await after.until_gone(f"{PODS}/after-{end}")


async def test_webhooks_on_loopback_are_called(real_parts: RealParts, api: Api) -> None:
    """A webhook at 127.0.0.1 can reject an object with its own message."""
    webhooks = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
    with serving_refusals(real_parts.ca_file) as port:
        await api.create(webhooks, webhook(port, real_parts.ca_file.read_bytes()))
        with pytest.raises(ApiError, match="not on my watch"):
            await create_until_refused(api)
        await api.delete(f"{webhooks}/refusing.example.org")


class Refusal(BaseHTTPRequestHandler):
    """Answers every AdmissionReview with no."""

    def do_POST(self) -> None:
        review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        review["response"] = {
            "uid": review.pop("request")["uid"],
            "allowed": False,
            "status": {"message": "not on my watch"},
        }
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(review).encode())


@contextmanager
def serving_refusals(certificate: Path) -> Iterator[int]:
    """A webhook's port. The API server's own certificate is one for 127.0.0.1: it serves here."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, certificate.with_suffix(".key"))
    with HTTPServer((ports.LOOPBACK, 0), Refusal) as server:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


async def create_until_refused(api: Api) -> None:
    while True:  # the API server takes a moment to notice a new webhook
        await api.create(CONFIG_MAPS, config_map("refused", labels={"refuse": "me"}))
        await api.delete(f"{CONFIG_MAPS}/refused")


def webhook(port: int, ca: bytes) -> dict[str, Any]:
    return {
        "metadata": {"name": "refusing.example.org"},
        "webhooks": [
            {
                "name": "refusing.example.org",
                "clientConfig": {
                    "url": f"https://{ports.LOOPBACK}:{port}/refuse",
                    "caBundle": base64.b64encode(ca).decode(),
                },
                "objectSelector": {"matchLabels": {"refuse": "me"}},
                "rules": [
                    {
                        "apiGroups": [""],
                        "apiVersions": ["v1"],
                        "operations": ["CREATE"],
                        "resources": ["configmaps"],
                    }
                ],
                "failurePolicy": "Fail",
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
            }
        ],
    }
