"""The name server of real kubelets' pods, message by message."""

import ipaddress
import struct
from typing import Any

import pytest

from stromboli.testkit.parts import cluster_dns


def query(name: str, kind: int = 1) -> bytes:
    labels = b"".join(bytes([len(each)]) + each.encode() for each in name.split("."))
    return struct.pack("!6H", 7, 0x0100, 1, 0, 0, 0) + labels + b"\0" + struct.pack("!2H", kind, 1)


def pod(hostname: str, address: str, *, ready: str = "True") -> dict[str, Any]:
    return {
        "metadata": {},
        "spec": {"hostname": hostname, "subdomain": "mpi"},
        "status": {"podIP": address, "conditions": [{"type": "Ready", "status": ready}]},
    }


def test_a_query_is_answered_with_addresses_after_its_question() -> None:
    requested = query("Mpi-Worker-0.mpi.default.svc.cluster.local")
    name, kind, question = cluster_dns.question(requested)
    assert (name, kind) == ("mpi-worker-0.mpi.default.svc.cluster.local", 1)
    answer = cluster_dns.response(requested, question, ["10.0.0.7"], 0)
    identifier, flags, questions, answers, *_ = struct.unpack_from("!6H", answer)
    assert (identifier, flags & 0x800F, questions, answers) == (7, 0x8000, 1, 1)
    assert answer[12:].startswith(question)
    assert answer[-4:] == ipaddress.IPv4Address("10.0.0.7").packed


@pytest.mark.parametrize("message", [b"", b"\0" * 12, query("a.b")[:14]])
def test_a_message_that_is_no_query_raises(message: bytes) -> None:
    with pytest.raises((ValueError, IndexError, struct.error)):
        cluster_dns.question(message)


def test_names_are_those_of_pods_and_headless_services() -> None:
    assert cluster_dns.place_of("w-0.mpi.default.svc.cluster.local") == ("w-0", "mpi", "default")
    assert cluster_dns.place_of("mpi.default.svc.cluster.local") == ("", "mpi", "default")
    assert cluster_dns.place_of("example.com") is None
    assert cluster_dns.place_of("svc.cluster.local") is None


def test_only_ready_pods_have_addresses() -> None:
    pods = [pod("w-0", "10.0.0.1"), pod("w-1", "10.0.0.2"), pod("w-2", "10.0.0.3", ready="False")]
    assert cluster_dns.addresses_of(pods, "w-1", "mpi") == ["10.0.0.2"]
    assert cluster_dns.addresses_of(pods, "w-2", "mpi") == []
    assert cluster_dns.addresses_of(pods, "", "mpi") == ["10.0.0.1", "10.0.0.2"]


def test_a_services_name_leads_to_the_pods_that_it_selects() -> None:
    """Every Service is headless here, also one with an address of its own."""
    pods = [pod("a", "10.0.0.1"), pod("b", "10.0.0.2", ready="False"), pod("c", "10.0.0.3")]
    for each, app in zip(pods, ("web", "web", "other"), strict=True):
        each["metadata"]["labels"] = {"app": app, "pod": "any"}
    service: dict[str, Any] = {"spec": {"selector": {"app": "web"}}}
    assert cluster_dns.addresses_of_service(pods, service) == ["10.0.0.1"]
    service["spec"]["publishNotReadyAddresses"] = True
    assert cluster_dns.addresses_of_service(pods, service) == ["10.0.0.1", "10.0.0.2"]
    assert cluster_dns.addresses_of_service(pods, {"spec": {}}) == []
