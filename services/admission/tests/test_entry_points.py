"""Every case of admission through both ways in, and what no way in may do: fail or hang."""

import asyncio
import base64
import contextlib
import functools
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stromboli.admission.review.service import AdmissionService
from stromboli.admission.settings import AdmissionSettings
from stromboli.admission.webhooks import webhooks
from stromboli.embedded.cluster import EmbeddedCluster
from stromboli.shared import keys
from stromboli.shared.api import core, kinds, meta
from stromboli.shared.messages.admission import ObjectReviewed
from stromboli.shared.runtime import runtime
from stromboli.testkit import builders, records
from stromboli.testkit.admission_cases import manifests, other_kinds, rules
from stromboli.testkit.admission_cases.rules import Case
from stromboli.testkit.doubles import shared_rest

SETTINGS = AdmissionSettings()
CASES = rules.CASES
JSON = {"content-type": "application/json"}
HIGH = {
    "apiVersion": kinds.PRIORITY_CLASSES.api_version,
    "kind": kinds.PRIORITY_CLASSES.kind,
    "metadata": {"name": "high"},
    "value": 1000,
}
"""The class to which cases of updates change."""
ALL_RULES = (*webhooks.RULES, *webhooks.POD_RULES)


class EntryPoints:
    """One admission service: its webhooks and its REST API."""

    def __init__(
        self, cluster: EmbeddedCluster, admission: AdmissionService, rest: httpx.AsyncClient
    ) -> None:
        self.cluster = cluster
        self.admission = admission
        self.rest = rest

    @functools.cached_property
    def webhooks(self) -> httpx.AsyncClient:
        """A client of the webhooks, whose application takes longer to build than a request."""
        return httpx.AsyncClient(
            transport=httpx.ASGITransport(app=webhooks.app(self.admission)),  # type: ignore[arg-type]
            base_url="http://webhooks",
        )


@contextlib.asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[EntryPoints]:
    async with EmbeddedCluster(folder / "cluster.db") as cluster:
        for document in rules.EXISTING_OBJECTS:
            name = document["metadata"]["name"]
            await cluster.create(kinds.QUEUES, "", msgspec.json.encode(document))
            status = msgspec.json.encode({"status": document["status"]})
            await cluster.patch(
                kinds.QUEUES, "", name, status, patch_type="merge", subresource="status"
            )
        await cluster.create(kinds.HYPER_NODES, "", msgspec.json.encode(other_kinds.RACK))
        await cluster.create(kinds.PRIORITY_CLASSES, "", msgspec.json.encode(HIGH))
        admission = AdmissionService(SETTINGS, cluster, runtime.utc_now)
        async with shared_rest.client_of(admission, cluster) as rest:
            yield EntryPoints(cluster, admission, rest)


@pytest.fixture
async def entry_points(tmp_path: Path) -> AsyncIterator[EntryPoints]:
    async with opened(tmp_path) as made:
        yield made


class SharedServer:
    """An admission service for many requests: building one costs more than a request."""

    def __init__(self, runner: asyncio.Runner, entry_points: EntryPoints) -> None:
        self._runner, self._ways = runner, entry_points

    def requested(self, path: str, **content: Any) -> httpx.Response:
        """The webhook's answer, soon."""

        async def ask() -> httpx.Response:
            async with asyncio.timeout(records.DEADLINE_S):
                return await self._ways.webhooks.post(path, **content)

        return self._runner.run(ask())

    def recorded(self) -> Any:
        """The last review on its way to the log; earlier ones are discarded."""
        pending_reviews = self._ways.admission.pending_reviews
        found = [pending_reviews.get_nowait().message for _ in range(pending_reviews.qsize())]
        return [it for it in found if isinstance(it, ObjectReviewed)][-1]


@pytest.fixture(scope="module")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedServer]:
    stack = contextlib.AsyncExitStack()
    folder = tmp_path_factory.mktemp("standing")
    with asyncio.Runner() as runner:
        yield SharedServer(runner, runner.run(stack.enter_async_context(opened(folder))))
        runner.run(stack.aclose())


def request(case: Case, document: Any, before: Any = None) -> dict[str, Any]:
    """The AdmissionReview of an API server for the case."""
    is_deleted = case.operation == "DELETE"
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "u",
            "kind": {
                "group": case.kind.group,
                "version": case.kind.version,
                "kind": case.kind.kind,
            },
            "operation": case.operation,
            "namespace": "default" if case.kind.namespaced else "",
            "object": None if is_deleted else document,
            "oldObject": document if is_deleted else before,
            "userInfo": {"username": "ada"},
        },
    }


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_webhook_decides_the_case_and_records_it(shared_server: SharedServer, case: Case) -> None:
    """The user, the operation, and the violations."""
    review = request(case, case.document, case.before)
    response = shared_server.requested(f"/{case.kind.plural}/validate", json=review).json()[
        "response"
    ]
    assert (response["uid"], response["allowed"]) == ("u", not case.refused)
    if case.refused:
        assert f"{case.refused}: " in response["status"]["message"]
        assert response["status"]["code"] == 422
    message = shared_server.recorded()
    assert (message.kind, message.operation, message.user, message.entry_point) == (
        case.kind.kind,
        case.operation,
        "ada",
        "webhook",
    )
    paths = {violation.path for violation in message.violations}
    assert (message.allowed, paths) == (not case.refused, {case.refused} - {""})


@pytest.mark.parametrize("case", CASES, ids=str)
async def test_rest_judges_the_case(entry_points: EntryPoints, case: Case) -> None:
    name = case.document["metadata"]["name"]
    namespace = "default" if case.kind.namespaced else ""
    exists = name in {queue["metadata"]["name"] for queue in rules.EXISTING_OBJECTS}
    if case.before and not exists:
        await entry_points.cluster.create(case.kind, namespace, msgspec.json.encode(case.before))
    if case.operation == "DELETE":
        answer = await entry_points.rest.delete(f"/v1/queues/{name}")
    else:
        answer = await entry_points.rest.post("/v1/apply", json={"objects": [case.document]})
    if not case.refused:
        assert answer.is_success, answer.text
        return
    assert answer.status_code == 422
    assert {item["path"] for item in answer.json()["violations"]} == {case.refused}


async def test_a_body_over_three_mebibytes_is_refused(entry_points: EntryPoints) -> None:
    body = b" " * (webhooks.BODY_LIMIT_BYTES + 1)
    answer = await entry_points.webhooks.post("/jobs/validate", content=body, headers=JSON)
    assert answer.status_code == 413


async def test_a_question_about_another_kind_than_the_paths_is_refused(
    entry_points: EntryPoints,
) -> None:
    case = Case(name="", kind=kinds.JOBS, document=manifests.job())
    answer = await entry_points.webhooks.post("/queues/validate", json=request(case, case.document))
    assert not answer.json()["response"]["allowed"]


async def test_resource_groups_send_pods_where_the_operator_wants_them(tmp_path: Path) -> None:
    """And a changed file is read again; one that cannot be read changes nothing."""
    file = tmp_path / "groups.yaml"
    file.write_text(
        "resourceGroups:\n- resourceGroup: batch\n  object: {key: namespace, value: [default]}\n"
        "  schedulerName: volcano\n  labels: {pool: batch}\n"
        "  tolerations: [{key: batch, tolerationseconds: 5}]\n"
    )
    chosen = msgspec.structs.replace(SETTINGS, resource_groups_file=str(file))
    async with opened(tmp_path) as made:
        admission = AdmissionService(chosen, made.cluster, runtime.utc_now)
        case = Case(name="", kind=kinds.PODS, document=manifests.pod("default-scheduler"))

        async def patched() -> dict[str, Any]:
            body = msgspec.json.encode(request(case, case.document))
            response = msgspec.json.decode(await admission.answer("/pods/mutate", body))["response"]
            operations = msgspec.json.decode(base64.b64decode(response.get("patch", "W10=")))
            return {each["path"]: each["value"] for each in operations}

        assert await patched() == {
            "/spec/nodeSelector": {"pool": "batch"},
            "/spec/tolerations": [{"key": "batch", "tolerationSeconds": 5}],
            "/spec/schedulerName": "volcano",
        }
        file.write_text("resourceGroups: [nonsense, of, another, length]")
        assert "/spec/schedulerName" in await patched()
        file.write_text("resourceGroups: []")
        assert await patched() == {}


async def test_a_job_may_depend_on_an_existing_job_or_one_of_its_request(
    entry_points: EntryPoints,
) -> None:
    """In any order in the manifest; through the webhook, only on an existing job."""
    waiting = rules.job_depending_on("afterok:first")
    case = Case(name="", kind=kinds.JOBS, document=waiting)
    body = msgspec.json.encode(request(case, waiting))
    before = msgspec.json.decode(await entry_points.admission.answer("/jobs/validate", body))
    assert "there is no job first" in before["response"]["status"]["message"]
    both = {"objects": [waiting, manifests.job(name="first")]}
    assert (await entry_points.rest.post("/v1/apply", json=both)).status_code == 200
    after = msgspec.json.decode(await entry_points.admission.answer("/jobs/validate", body))
    assert after["response"]["allowed"]


async def test_a_namespace_sets_the_default_queue(entry_points: EntryPoints) -> None:
    annotations = {keys.NAMESPACE_QUEUE: "child"}
    namespace = core.Namespace(metadata=meta.ObjectMeta(name="default", annotations=annotations))
    entry_points.admission.fold(builders.make_record(builders.snapshot_of(namespace)))
    stored = await entry_points.rest.post("/v1/apply", json={"objects": [manifests.job()]})
    assert stored.json()[0]["object"]["spec"]["queue"] == "child"


_LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=8),
)
_JSON = st.recursive(
    _LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=12,
)


@st.composite
def _broken(draw: st.DrawFn) -> tuple[Case, Any]:
    """A case's object with something else somewhere in it."""
    case = draw(st.sampled_from(CASES))
    document: Any = msgspec.json.decode(msgspec.json.encode(case.document))
    holder = document
    while True:
        places = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
        if not places:
            break
        place = draw(st.sampled_from(places))
        inner = holder[place]
        if isinstance(inner, dict | list) and draw(st.booleans()):
            holder = inner
            continue
        holder[place] = draw(_JSON)
        break
    return case, document


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(broken=_broken(), rule=st.sampled_from(ALL_RULES))
def test_the_webhook_responds_for_any_object(
    shared_server: SharedServer, broken: tuple[Case, Any], rule: Any
) -> None:
    """Allowed or rejected, never an internal error or a missing response."""
    case, document = broken
    kind, entry_point, _ = rule
    for requested, path in (
        (case.kind, f"/{case.kind.plural}/validate"),
        (kind, f"/{kind.plural}/{entry_point}"),
    ):
        review = request(msgspec.structs.replace(case, kind=requested), document, case.before)
        answer = shared_server.requested(path, json=review)
        assert answer.status_code == 200, answer.text


@settings(max_examples=200, deadline=None)
@given(body=st.one_of(st.binary(max_size=200), _JSON.map(msgspec.json.encode)))
def test_the_webhook_reports_errors_for_any_body(shared_server: SharedServer, body: bytes) -> None:
    assert shared_server.requested("/jobs/validate", content=body, headers=JSON).status_code == 400
