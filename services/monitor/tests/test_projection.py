"""The fields of an object that are published on its topic."""

import msgspec
import pytest

from stromboli.monitor.core import projection
from stromboli.shared import keys
from stromboli.shared.api import batch, core, flow, kinds, meta
from stromboli.shared.messages import base, cluster
from stromboli.testkit import builders, objects, served_pods

SECRET = "s3cret"
ENVIRONMENT = {"env": [{"name": "A", "value": SECRET}]}
WITH_VALUE = builders.make_task(
    pod_spec={"containers": [{"name": "c", "image": "i", **ENVIRONMENT}]}
)
PATCHED = flow.Flow(
    name="t",
    depends_on=flow.FlowDependsOn(
        probe=flow.Probe(
            http_get_list=(flow.HttpGet(http_header=flow.HttpHeader(name="A", value=SECRET)),)
        )
    ),
    patch=flow.FlowPatch(
        job_spec=msgspec.Raw(base.encode(builders.make_job(tasks=[WITH_VALUE]).spec))
    ),
)
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def raw(kind: projection.AnyKind, **fields: object) -> bytes:
    metadata = {"name": "x", "namespace": "ns", "uid": "u1", "resourceVersion": "7"}
    return msgspec.json.encode({"kind": kind.kind, "metadata": metadata, **fields})


def test_the_projection_has_the_fields_of_the_structs() -> None:
    """Nothing else of the object, and its identity beside it."""
    node = builders.make_node("n1", version=7)
    document = msgspec.json.decode(base.encode(node))
    document["status"]["volumesInUse"] = ["a"]
    observed = projection.observe(kinds.NODES, msgspec.json.encode(document))
    assert observed.message == node
    assert observed.identity == projection.Identity("n1", "node-n1", 7)


def test_two_versions_of_one_content_are_one() -> None:
    one, two = (
        projection.observe(kinds.NODES, base.encode(builders.make_node("n1", version=version)))
        for version in (7, 8)
    )
    assert one.digest == two.digest == projection.digest(one.message)
    other = projection.observe(kinds.NODES, base.encode(builders.make_node("n1", "9")))
    assert other.digest != one.digest


def test_annotations_are_kept_except_kubectls_copy_and_large_values() -> None:
    kept = {"a": "1", "limit": "x" * projection.LARGEST_ANNOTATION_BYTES}
    dropped = {
        keys.LAST_APPLIED: "{}",
        "above": "x" * (projection.LARGEST_ANNOTATION_BYTES + 1),
        "letters": "é" * projection.LARGEST_ANNOTATION_BYTES,
    }
    pod = builders.make_pod("p1", annotations=kept | dropped)
    observed = projection.observe(kinds.PODS, base.encode(pod))
    assert isinstance(observed.message, type(pod))
    assert observed.message.metadata.annotations == kept


def test_annotations_of_a_template_are_the_pods_to_come() -> None:
    """They stay as the user wrote them."""
    task = builders.make_task(annotations={keys.LAST_APPLIED: "{}"})
    observed = projection.observe(kinds.JOBS, base.encode(builders.make_job(tasks=[task])))
    assert isinstance(observed.message, batch.Job)
    annotations = observed.message.spec.tasks[0].template.metadata.annotations
    assert annotations == {keys.LAST_APPLIED: "{}"}


def test_the_trace_is_the_objects() -> None:
    job = objects.job("j1", {"annotations": {keys.TRACEPARENT: TRACE}})
    assert projection.observe(kinds.JOBS, job).traceparent == TRACE
    assert projection.observe(kinds.JOBS, objects.job("j1")).traceparent == ""


def test_an_unreadable_object_is_a_stub_with_the_path() -> None:
    observed = projection.observe(kinds.JOBS, raw(kinds.JOBS, spec={"minAvailable": "two"}))
    assert isinstance(observed.message, cluster.Unreadable)
    assert (observed.message.uid, observed.message.resource_version) == ("u1", "7")
    assert "$.spec.minAvailable" in observed.message.reason
    assert observed.identity.key == "ns/x"


def test_the_stub_of_an_unreadable_pod_has_its_node() -> None:
    """The resources that it uses are unknown, so no other pod may be placed there."""
    spec = {"nodeName": "n1", "priority": 10**30}
    observed = projection.observe(kinds.PODS, raw(kinds.PODS, spec=spec))
    assert isinstance(observed.message, cluster.Unreadable)
    assert observed.message.node == "n1"


def test_a_too_large_object_is_a_stub_with_the_reason() -> None:
    labels = {"large": "x" * projection.LARGEST_VALUE_BYTES}
    observed = projection.observe(
        kinds.NODES, base.encode(builders.make_node("n1", labels=labels, version=3))
    )
    assert isinstance(observed.message, cluster.Unreadable)
    assert observed.message.reason.startswith("too large: ")


def test_a_stub_is_published_once_and_not_for_every_version() -> None:
    bad = raw(kinds.JOBS, spec=1)
    again = bad.replace(b'"7"', b'"8"')
    one, two = projection.observe(kinds.JOBS, bad), projection.observe(kinds.JOBS, again)
    assert one.digest == two.digest
    assert two.identity.version == 8


def test_an_object_without_metadata_is_no_object() -> None:
    with pytest.raises(msgspec.DecodeError):
        projection.observe(kinds.JOBS, b'{"spec":1}')


def test_every_kind_has_its_own_signature() -> None:
    """So a monitor that reads more fields lists again what an older one has published."""
    signatures = {projection.signature(kind) for kind in kinds.WATCHED}
    assert len(signatures) == len(kinds.WATCHED)
    assert projection.signature(kinds.JOBS) == projection.signature(kinds.JOBS)


def test_an_object_that_is_nested_too_deeply_is_unreadable_and_keeps_its_name() -> None:
    """An API server stores up to 10,000 levels where a definition preserves unknown fields, and
    Python 3.13 decodes them; 3.11 decodes 1,000."""
    metadata = b'{"name": "x", "namespace": "ns", "uid": "u1", "resourceVersion": "7"}'
    for document in (
        b'{"metadata": %s, "spec": {"deep": %s}}',
        b'{"spec": {"deep": %s}, "metadata": %s}',
    ):
        deep = b"[" * 200_000 + b"]" * 200_000
        parts = (metadata, deep) if document.startswith(b'{"metadata') else (deep, metadata)
        observed = projection.observe(kinds.JOBS, document % parts)
        assert isinstance(observed.message, cluster.Unreadable)
        assert observed.identity == projection.Identity("ns/x", "u1", 7)


def test_of_a_pods_volumes_only_those_with_a_claim_are_on_the_topic() -> None:
    """A token volume has a random name, in every pod: bytes that no service reads."""
    claimed = [
        {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "scratch", "ephemeral": {}},
    ]
    document = served_pods.document(builders.make_pod("p1"))
    document["spec"]["volumes"] += claimed
    observed = projection.observe(kinds.PODS, msgspec.json.encode(document))
    assert isinstance(observed.message, core.Pod)
    assert [each.name for each in observed.message.spec.volumes] == ["data", "scratch"]


@pytest.mark.parametrize(
    "workload",
    [
        builders.make_job(tasks=[WITH_VALUE], plugins={"ssh": ("--ssh-private-key", SECRET)}),
        builders.make_template("t", builders.make_job(tasks=[WITH_VALUE])),
        builders.make_cron("c", job=builders.make_job(tasks=[WITH_VALUE])),
        builders.make_flow("f", [PATCHED]),
    ],
    ids=lambda workload: type(workload).__name__,
)
def test_no_literal_value_of_the_environment_is_published(workload: meta.Object) -> None:
    raw = base.encode(workload)
    assert SECRET.encode() in raw
    observed = projection.observe(builders.kind_of(workload), raw)
    published = base.encode(observed.message)
    assert SECRET.encode() not in published
    assert b'"name":"A"' in published
    assert projection.observe(builders.kind_of(workload), published).digest == observed.digest
