"""Pods and jobs are decoded as by a plain decoder, and equal parts of them are one object."""

import itertools
import sys
import tracemalloc
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from stromboli.shared import decoding
from stromboli.shared.api import batch, core, kinds, meta
from stromboli.shared.messages import base, cluster, sharing_decoders
from stromboli.testkit import builders, served_pods

PLAIN = decoding.decoder_of(core.Pod)
POD = base.encode(
    builders.make_pod("p1", "g1", node="n1", labels={"a": "b"}, owner=builders.make_job())
)
SPEC = b'"spec":{"nodeName":"n1",'


def gang(pods: int) -> Iterator[bytes]:
    """Running pods of a job, as records contain them."""
    for index in range(pods):
        pod = builders.make_pod(
            f"g-worker-{index}", "g", index=index, task="worker", owner=builders.make_job("g")
        )
        document = served_pods.document(pod, with_token=False)
        document["spec"]["nodeName"] = f"n{index % 7}"
        at = "2026-01-01T12:00:00Z"
        document["status"] |= {
            "phase": "Running",
            "startTime": at,
            "podIP": f"10.0.0.{index}",
            "conditions": [
                {"type": name, "status": "True", "lastTransitionTime": at}
                for name in ("Initialized", "Ready", "ContainersReady", "PodScheduled")
            ],
            "containerStatuses": [{"name": "main", "ready": True}],
        }
        yield base.encode(kinds.PODS.decode(msgspec.json.encode(document)))


@pytest.mark.parametrize(
    "raw",
    [
        POD,
        POD.replace(SPEC, b'"spec":{"priority":1,"nodeName":"n1",'),
        POD.replace(SPEC, SPEC + b'"nodeName":"n2",'),
        POD.replace(SPEC, b'"spec":{"nodeName":"n\\u0031",'),
        POD.replace(SPEC, b'"spec":{"nodeName":"n\xc3\xa9",'),
        POD.replace(SPEC, b'"spec":{"tolerations":[{"nodeName":"n2"}],"nodeName":"n1",'),
        POD.replace(SPEC, b'"spec":{"of":{"nodeName":"n2","a":1},"nodeName":"n1",'),
        b'{"metadata":{"name":"p1"},"spec":{"nodeName":"n1"}}',
        b'{"metadata":{"name":"p1"},"spec":{},"status":{}}',
        b'{"metadata":{"name":"p1"}}',
        b"{}",
    ],
)
def test_a_pod_decodes_as_by_a_plain_decoder(raw: bytes) -> None:
    decoder = sharing_decoders.PodDecoder()
    for _ in range(2):  # the second time from the tables
        assert decoder.decode(raw) == PLAIN.decode(raw)


@pytest.mark.parametrize(
    "raw",
    [
        POD.replace(SPEC, b'"spec":{"nodeName":1,'),
        POD.replace(SPEC, b'"spec":{"nodeName":"n\x01",'),
        POD.replace(SPEC, b'"spec":{"nodeName":"n\xff",'),
        POD.replace(SPEC, b'"spec":{"nodeName":"n1",,'),
        POD.replace(SPEC, b'"spec":{"priority":"high",'),
        b'{"metadata":{},"spec":null}',
        b'{"metadata":{},"spec":' + b"[" * 5000,
        b"[]",
        b"",
    ],
)
def test_an_invalid_pod_has_the_error_of_a_plain_decoder(raw: bytes) -> None:
    with pytest.raises(msgspec.DecodeError) as plain:
        decoding.decode(PLAIN, raw)
    with pytest.raises(msgspec.DecodeError) as found:
        decoding.decode(sharing_decoders.PodDecoder(), raw)
    assert str(found.value) == str(plain.value)


def test_pods_of_a_gang_share_what_is_equal_whatever_their_nodes_and_addresses() -> None:
    decoder = sharing_decoders.PodDecoder()
    first, second = (decoder.decode(raw) for raw in gang(2))
    assert (first.spec.node_name, second.spec.node_name) == ("n0", "n1")
    assert (first.status.pod_ip, second.status.pod_ip) == ("10.0.0.0", "10.0.0.1")
    assert first.spec.containers is second.spec.containers
    assert first.status.conditions is second.status.conditions
    assert first.metadata.owner_references is second.metadata.owner_references


def test_labels_of_pods_with_equal_parts_differ() -> None:
    """The dicts are not shared, only their values."""
    decoder = sharing_decoders.PodDecoder()
    indexes = [decoder.decode(raw).metadata.annotation("volcano.sh/task-index") for raw in gang(3)]
    assert indexes == ["0", "1", "2"]


def test_a_pod_of_a_gang_takes_a_third_of_the_memory() -> None:
    """100,000 pods decoded one by one take 480 MB in each service that keeps them."""
    raws = list(gang(300))

    def taken(decoder: decoding.Decoder[core.Pod]) -> float:
        tracemalloc.start()
        pods = [decoder.decode(raw) for raw in raws]
        size, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return size / len(pods)

    assert taken(sharing_decoders.PodDecoder()) < taken(PLAIN) / 3


def test_pods_that_share_nothing_do_not_fill_the_tables() -> None:
    """Any user may create pods with large specs and distinct labels."""
    decoder = sharing_decoders.PodDecoder()
    largest = 0
    tracemalloc.start()
    for number in itertools.count():
        spec: dict[str, Any] = {"schedulerName": f"{number:0>9000}"}
        labels = {f"l{at}": f"{number}-{at}" for at in range(100)}
        document = {"metadata": {"labels": labels}, "spec": spec}
        decoder.decode(msgspec.json.encode(document))
        largest = max(largest, tracemalloc.get_traced_memory()[0])
        if number * 9000 > 3 * sharing_decoders.MOST_BYTES:
            break
    tracemalloc.stop()
    assert largest < 6 * sharing_decoders.MOST_BYTES


def test_records_of_pods_are_decoded_so() -> None:
    name = base.type_name(core.Pod)
    first, second = (base.decode(name, raw) for raw in gang(2))
    assert isinstance(first, core.Pod)
    assert isinstance(second, core.Pod)
    assert first.spec.containers is second.spec.containers


def finished_jobs(count: int) -> Iterator[bytes]:
    """Jobs of one template, as the API server returns them."""
    at = "2026-01-01T12:00:00Z"
    status = batch.JobStatus(
        state=batch.JobState(phase="Completed", reason="Succeeded"),
        conditions=tuple(batch.JobCondition(status=it) for it in ("Pending", "Running")),
    )
    spec = {"containers": [{"name": "main", "image": "busybox", "command": ["x" * 1_000]}]}
    for number in range(count):
        job = builders.make_job(f"j{number}", tasks=[builders.make_task()])
        document = msgspec.json.decode(msgspec.json.encode(job))
        document["spec"]["tasks"][0]["template"] = {"spec": spec}
        document["status"] = msgspec.to_builtins(status) | {"startedAt": at}
        document["metadata"]["managedFields"] = [{"manager": "strom", "fieldsV1": "f" * 2_000}]
        yield msgspec.json.encode(document)


@pytest.mark.parametrize(
    "raw",
    [
        next(finished_jobs(1)),
        b'{"metadata":{"name":"j"},"spec":{"tasks":[{"template":{"spec":{"a":1}}}]}}',
        b'{"metadata":{"name":"j"},"spec":{},"status":{}}',
        b"{}",
    ],
)
def test_a_job_decodes_as_by_a_plain_decoder(raw: bytes) -> None:
    decoder = sharing_decoders.JobDecoder()
    for _ in range(2):
        assert decoder.decode(raw) == kinds.JOBS.decode(raw)


@pytest.mark.parametrize(
    "raw",
    [
        b'{"spec":{"minAvailable":"one"}}',
        b'{"status":{"conditions":[{}]}}',
        b'{"spec":{"tasks":[1]}}',
    ],
)
def test_an_invalid_job_has_the_error_of_a_plain_decoder(raw: bytes) -> None:
    with pytest.raises(msgspec.DecodeError) as plain:
        kinds.JOBS.decode(raw)
    with pytest.raises(msgspec.DecodeError) as shared:
        sharing_decoders.JobDecoder().decode(raw)
    assert str(shared.value) == str(plain.value)


def test_jobs_of_one_template_take_a_quarter_of_the_memory() -> None:
    """A job's raw pod templates refer to all bytes from which they were decoded."""

    def bytes_per_job(decoder: decoding.Decoder[batch.Job]) -> float:
        tracemalloc.start()
        jobs = [decoder.decode(raw) for raw in finished_jobs(200)]
        size, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return size / len(jobs)

    plain = bytes_per_job(decoding.decoder_of(batch.Job))
    assert bytes_per_job(sharing_decoders.JobDecoder()) < plain / 4


def test_jobs_of_different_templates_do_not_keep_the_rest_of_their_bytes() -> None:
    """Most of a response may be managed fields."""
    raw = next(finished_jobs(1)).replace(b"busybox", b"unshared" * 4_000)
    before = sys.getrefcount(raw)
    plain = kinds.JOBS.decode(raw)
    assert sys.getrefcount(raw) == before + 1
    job = sharing_decoders.JobDecoder().decode(raw)
    assert sys.getrefcount(raw) == before + 1
    assert job == plain


@pytest.mark.parametrize("kind", [kinds.JOBS, kinds.POD_GROUPS, kinds.PODS, kinds.SECRETS])
def test_a_response_is_decoded_as_its_kind(kind: kinds.Kind[meta.Object]) -> None:
    raw = b'{"metadata":{"name":"o","uid":"u"}}'
    assert cluster.decode_object(kind, raw) == kind.decode(raw)


def test_jobs_from_responses_and_records_share_their_specs() -> None:
    first, second = finished_jobs(2)
    record = base.decode(base.type_name(batch.Job), first)
    assert isinstance(record, batch.Job)
    assert cluster.decode_object(kinds.JOBS, second).spec is record.spec
