"""REST lists data sets with their copies in the caches of nodes, to users who may know of them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from stromboli.admission.core import data_copies
from stromboli.admission.review.service import AdmissionService
from stromboli.admission.settings import AdmissionSettings
from stromboli.embedded.cluster import EmbeddedCluster
from stromboli.shared import decoding, envelope, errors, topics
from stromboli.shared.api import kinds
from stromboli.shared.api.views.data_copies import CopyState, DataSetCopies, DataSetPage
from stromboli.shared.jobspec import data_sets
from stromboli.shared.messages import data
from stromboli.shared.runtime import runtime
from stromboli.testkit import builders, objects
from stromboli.testkit.contracts.accounts import Scene
from stromboli.testkit.doubles import shared_rest
from stromboli.testkit.doubles.authorized_admission import open_admission

IMAGES, TEXT, SECRET = "s3://c/images", "s3://c/text", "s3://merger/plan"
DIGEST = f"sha256:{'a' * 64}"


def key(uri: str, digest: str = "") -> str:
    return data_sets.content_key(uri, digest)


def copy(uri: str, state: CopyState = "Complete", **fields: Any) -> data.DataCopy:
    requested = fields.pop("requested", "")
    return data.DataCopy(key=key(uri, requested), uri=uri, state=state, **fields)


def report(node: str, copies: Sequence[data.DataCopy] | None, offset: int = 0) -> envelope.Record:
    message = None
    if copies is not None:
        message = data.DataObserved(
            node=node, observed_at=builders.NOON, capacity_bytes=10**12, copies=tuple(copies)
        )
    draft = envelope.Draft(topic=topics.DATA, key=node, message=message, time=builders.NOON)
    return builders.make_record(draft, offset)


def naming(name: str, *named: dict[str, Any]) -> bytes:
    """A job that names these data sets."""
    template = {"spec": {"containers": [{"name": "c", "image": "busybox"}]}}
    task = {"name": "w", "replicas": 1, "template": template}
    return objects.make(kinds.JOBS, name, spec={"dataSets": list(named), "tasks": [task]})


@pytest.fixture
def admission(cluster: EmbeddedCluster) -> AdmissionService:
    return AdmissionService(AdmissionSettings(), cluster, runtime.utc_now)


async def get(admission: AdmissionService, cluster: EmbeddedCluster, path: str) -> httpx.Response:
    async with shared_rest.client_of(admission, cluster) as client:
        return await client.get(path)


async def listed(
    admission: AdmissionService, cluster: EmbeddedCluster, query: str = "", namespace: str = ""
) -> tuple[DataSetCopies, ...]:
    within = f"/namespaces/{namespace}" if namespace else ""
    answer = await get(admission, cluster, f"/v1{within}/data-sets{query}")
    assert answer.status_code == 200, answer.text
    return decoding.from_json(answer.content, DataSetPage).items


async def test_a_data_set_has_the_copies_of_all_nodes(
    admission: AdmissionService, cluster: EmbeddedCluster
) -> None:
    whole = copy(
        IMAGES, bytes=12, fetched_bytes=12, digest=DIGEST, in_use=True, last_used_at=builders.NOON
    )
    failed = copy(IMAGES, "Failed", bytes=12, fetched_bytes=3, reason="403; next attempt in 10 s")
    admission.fold(report("n2", [whole]))
    admission.fold(report("n1", [failed]))
    (copies,) = await listed(admission, cluster)
    assert (copies.key, copies.uri, copies.digest, copies.bytes) == (
        key(IMAGES),
        IMAGES,
        DIGEST,
        12,
    )
    first, second = copies.nodes
    assert (first.node, first.state, first.fetched_bytes) == ("n1", "Failed", 3)
    assert first.reason == "403; next attempt in 10 s"
    assert (second.node, second.in_use, second.last_used_at) == ("n2", True, builders.NOON)
    assert (second.observed_at, second.silent_since) == (builders.NOON, None)


async def test_a_new_report_of_a_node_replaces_its_copies(
    admission: AdmissionService, cluster: EmbeddedCluster
) -> None:
    admission.fold(report("n1", [copy(IMAGES), copy(TEXT), copy(TEXT)]))
    admission.fold(report("n2", [copy(TEXT)]))
    admission.fold(report("n1", [copy(IMAGES, "Waiting")], 1))
    node_copies = {each.uri: each.nodes for each in await listed(admission, cluster)}
    assert {uri: [(it.node, it.state) for it in nodes] for uri, nodes in node_copies.items()} == {
        IMAGES: [("n1", "Waiting")],
        TEXT: [("n2", "Complete")],
    }
    admission.fold(report("n1", None, 2))
    assert [each.uri for each in await listed(admission, cluster)] == [TEXT]


async def test_an_unreadable_report_is_not_shown_and_is_reported(
    admission: AdmissionService, cluster: EmbeddedCluster
) -> None:
    admission.fold(report("n1", [copy(IMAGES)]))
    with pytest.raises(errors.UndecodableError):
        admission.fold(builders.undecodable_record(topics.DATA, "n1", 1))
    assert await listed(admission, cluster) == ()


async def test_reports_of_a_topic_that_was_created_again_are_dropped(
    admission: AdmissionService, cluster: EmbeddedCluster
) -> None:
    admission.fold(report("n1", [copy(IMAGES)]))
    admission.forget([topics.DATA.name])
    assert await listed(admission, cluster) == ()


async def test_a_digest_is_shown_only_if_all_complete_copies_have_it(
    admission: AdmissionService, cluster: EmbeddedCluster
) -> None:
    """Without a requested digest, an origin that changed gives nodes other content."""
    admission.fold(report("n1", [copy(IMAGES, digest=DIGEST, bytes=5)]))
    admission.fold(report("n2", [copy(IMAGES, "Fetching")]))
    (copies,) = await listed(admission, cluster)
    assert (copies.digest, copies.bytes) == (DIGEST, 5)
    admission.fold(report("n2", [copy(IMAGES, digest=f"sha256:{'b' * 64}", bytes=6)], 1))
    (copies,) = await listed(admission, cluster)
    assert (copies.digest, copies.bytes) == ("", 6)
    assert {it.digest[:8] for it in copies.nodes} == {"sha256:a", "sha256:b"}


async def test_lists_are_filtered_by_key_prefix_of_the_uri_and_node(
    admission: AdmissionService, cluster: EmbeddedCluster
) -> None:
    admission.fold(report("n1", [copy(IMAGES), copy(TEXT)]))
    admission.fold(report("n2", [copy(IMAGES), copy(SECRET)]))

    async def uris(query: str) -> list[str]:
        return sorted(each.uri for each in await listed(admission, cluster, query))

    assert await uris("?uri=s3://c/") == [IMAGES, TEXT]
    assert await uris("?node=n2") == [IMAGES, SECRET]
    assert await uris(f"?key={key(TEXT)}") == [TEXT]
    assert await uris("?node=n2&uri=s3://c/") == [IMAGES]
    assert await uris("?node=n9") == []
    (copies,) = await listed(admission, cluster, f"?node=n2&key={key(IMAGES)}")
    assert [it.node for it in copies.nodes] == ["n2"]


async def test_pages_have_each_data_set_once(
    admission: AdmissionService, cluster: EmbeddedCluster
) -> None:
    """Also with copies that appear and disappear between two pages."""
    uris = [f"s3://c/{number}" for number in range(7)]
    admission.fold(report("n1", [copy(uri) for uri in uris]))
    seen: list[str] = []
    token = ""
    while True:
        after = f"&continue={token}" if token else ""
        answer = await get(admission, cluster, f"/v1/data-sets?limit=3{after}")
        page = decoding.from_json(answer.content, DataSetPage)
        seen += [each.uri for each in page.items]
        admission.fold(report("n2", [copy(f"s3://new/{len(seen)}")], len(seen)))
        token = page.continue_
        if not token:
            break
    assert sorted(uri for uri in seen if uri.startswith("s3://c/")) == uris
    assert len(seen) == len(set(seen))


@pytest.mark.parametrize("query", ["continue=zz", f"continue={'x' * 32}", "limit=0", "of=x"])
async def test_invalid_parameters_of_a_list_are_rejected(
    admission: AdmissionService, cluster: EmbeddedCluster, query: str
) -> None:
    assert (await get(admission, cluster, f"/v1/data-sets?{query}")).status_code in (400, 422)


async def test_a_namespace_has_the_data_sets_that_its_jobs_name(
    admission: AdmissionService, cluster: EmbeddedCluster
) -> None:
    """Also those without a copy yet, with what the job states; those of other jobs are absent."""
    admission.fold(report("n1", [copy(IMAGES, bytes=12), copy(SECRET)]))
    named = {"name": "a", "uri": IMAGES, "mountPath": "/a", "size": "20G"}
    wanted = {"name": "b", "uri": TEXT, "mountPath": "/b", "size": "5G", "digest": DIGEST}
    claim = {"name": "c", "persistentVolumeClaim": "x", "mountPath": "/c"}
    fluid = {"name": "d", "uri": "fluid://default/x", "mountPath": "/d"}
    await cluster.create(kinds.JOBS, "default", naming("one", named, claim, fluid))
    await cluster.create(kinds.JOBS, "default", naming("two", wanted, named))
    copies = {each.uri: each for each in await listed(admission, cluster, namespace="default")}
    assert copies.keys() == {IMAGES, TEXT}
    assert [it.node for it in copies[IMAGES].nodes] == ["n1"]
    assert (copies[IMAGES].bytes, copies[IMAGES].digest) == (12, "")
    assert copies[TEXT] == DataSetCopies(
        key=key(TEXT, DIGEST), uri=TEXT, digest=DIGEST, bytes=5 * 10**9
    )
    assert await listed(admission, cluster, namespace="kube-system") == ()


def test_a_job_with_unreadable_data_sets_hides_only_its_own() -> None:
    """As stored before a definition of jobs with data sets was installed."""
    wrong_size = {"name": "a", "uri": IMAGES, "mountPath": "/a", "size": "many"}
    good = {"name": "b", "uri": TEXT, "mountPath": "/b"}
    broken = objects.make(kinds.JOBS, "form", spec={"dataSets": "none"})
    requests = data_copies.named_by([naming("size", wrong_size, good), broken, b"{"])
    assert [each.uri for each in requests.values()] == [TEXT]


def test_the_largest_stated_size_of_a_data_set_counts() -> None:
    sizes = ("5G", "20G", "")
    jobs = [
        naming("train", {"name": "a", "uri": IMAGES, "mountPath": "/a", "size": size})
        for size in sizes
    ]
    assert data_copies.named_by(jobs)[key(IMAGES)].bytes == 20 * 10**9


async def test_users_read_the_uris_of_their_own_jobs_alone(tmp_path: Path) -> None:
    """A URI can disclose what another tenant works on."""
    async with open_admission(tmp_path, Scene()) as server:
        blue, red = server.scene.blue, server.scene.red
        server.admission.fold(report("n1", [copy(IMAGES), copy(SECRET)]))
        for namespace, uri in ((blue, IMAGES), (red, SECRET)):
            named = {"name": "d", "uri": uri, "mountPath": "/d"}
            await server.cluster.create(kinds.JOBS, namespace, naming("train", named))
        async with server.as_("ann") as ann:
            own = await ann.get(f"/v1/namespaces/{blue}/data-sets")
            assert [each["uri"] for each in own.json()["items"]] == [IMAGES]
            for path in ("/v1/data-sets", f"/v1/namespaces/{red}/data-sets"):
                answer = await ann.get(path)
                assert (answer.status_code, SECRET in answer.text) == (403, False)
