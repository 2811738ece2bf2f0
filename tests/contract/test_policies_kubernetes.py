"""The CEL policies on a real API server: the same cases as for the other entry points."""

import asyncio
import contextlib
import copy
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from stromboli.shared import errors
from stromboli.shared.api import kinds, meta
from stromboli.shared.cluster import port
from stromboli.shared.cluster.kubernetes import KubernetesCluster, KubernetesSettings
from stromboli.shared.jobspec import policies
from stromboli.shared.runtime import runtime
from stromboli.testkit import crds, records
from stromboli.testkit.admission_cases import manifests, rules
from stromboli.testkit.admission_cases.rules import Case
from stromboli.testkit.parts import real

pytest_plugins = ["stromboli.testkit.parts.fixtures"]
pytestmark = [pytest.mark.real]

MARK = {"test.example/judged": "by-policies"}
"""Objects with this label are validated: other tests share the server."""
POLICIES: dict[str, kinds.Kind[meta.Object]] = {
    kind: kinds.Kind(
        "admissionregistration.k8s.io", "v1", kind, plural, meta.Object, namespaced=False
    )
    for kind, plural in (
        ("ValidatingAdmissionPolicy", "validatingadmissionpolicies"),
        ("ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings"),
    )
}
CASES = [case for case in rules.CASES if case.in_cel]


def marked(document: dict[str, Any]) -> bytes:
    made = copy.deepcopy(document)
    made["metadata"]["labels"] = MARK
    return msgspec.json.encode(made)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def judged(real_parts: real.RealParts) -> AsyncIterator[port.Cluster]:
    """A server with all policies in force on marked objects."""
    async with KubernetesCluster(
        KubernetesSettings(kubeconfig=str(real_parts.kubeconfig))
    ) as kubernetes_cluster:
        await crds.apply_crds(kubernetes_cluster)
        installed = []
        for path in policies.paths():
            for document in policies.documents(path.stem):
                if document["kind"].endswith("Binding"):
                    document["spec"]["matchResources"] = {"objectSelector": {"matchLabels": MARK}}
                kind = POLICIES[document["kind"]]
                await kubernetes_cluster.create(kind, "", msgspec.json.encode(document))
                installed.append((kind, document["metadata"]["name"]))
        for plural in {case.kind.plural for case in CASES}:
            wrong = next(it for it in CASES if it.kind.plural == plural and it.refused)
            await _until_refused(kubernetes_cluster, wrong)
        await _until_refused(
            kubernetes_cluster, next(it for it in CASES if it.operation == "DELETE")
        )
        yield kubernetes_cluster
        for kind, name in installed:
            await kubernetes_cluster.delete(kind, "", name)


async def _until_refused(cluster: port.Cluster, case: Case) -> None:
    """A policy is heeded a moment after it was written."""
    pauses = runtime.Backoff()
    async with asyncio.timeout(records.DEADLINE_S):
        while not await refusal(cluster, case):  # noqa: ASYNC110 - nobody tells when
            await asyncio.sleep(pauses.next_s())


async def refusal(cluster: port.Cluster, case: Case) -> str:
    """The server's message against the case, empty if it is accepted. The objects are removed."""
    kind, name = case.kind, case.document["metadata"]["name"]
    namespace = "default" if kind.namespaced else ""
    with contextlib.suppress(errors.NotFoundError):
        # An unmarked object is left from another test on this server: no policy checks its
        # deletion.
        await cluster.delete(kind, namespace, name)
    try:
        if case.operation == "CREATE":
            await cluster.create(kind, namespace, marked(case.document))
            return ""
        await cluster.create(kind, namespace, marked(case.before or case.document))
        if case.operation == "UPDATE":
            patch = marked(case.document)
            await cluster.patch(kind, namespace, name, patch, patch_type="merge")
        else:
            await cluster.delete(kind, namespace, name)
    except errors.InvalidError as error:
        return str(error)
    except errors.ForbiddenError as error:
        return str(error)
    else:
        return ""
    finally:
        with contextlib.suppress(errors.NotFoundError):
            unmarked = msgspec.json.encode({"metadata": {"labels": dict.fromkeys(MARK)}})
            await cluster.patch(kind, namespace, name, unmarked, patch_type="merge")
            await cluster.delete(kind, namespace, name)


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("case", CASES, ids=str)
async def test_an_api_server_decides_the_case_without_webhooks(
    judged: port.Cluster, case: Case
) -> None:
    """All violations that CEL can detect, in one response with their paths."""
    said = await refusal(judged, case)
    assert bool(said) == bool(case.refused), said
    assert case.refused.partition("[")[0] in said


@pytest.mark.asyncio(loop_scope="module")
async def test_one_response_contains_all_violations(judged: port.Cluster) -> None:
    wrong = manifests.job(minAvailable=9, plugins={"magic": []}, policies=[rules.ABORT])
    said = await refusal(judged, Case(name="wrong", kind=kinds.JOBS, document=wrong))
    for path in ("spec.minAvailable", "spec.plugins.magic", "spec.policies"):
        assert path in said


@pytest.mark.asyncio(loop_scope="module")
async def test_an_invalid_queue_may_change_fields_that_are_not_validated(
    judged: port.Cluster,
) -> None:
    """Without the mark it was created past the policies."""
    wrong = manifests.queue("wrong-already", capability={"cpu": "-1"})
    await judged.create(kinds.QUEUES, "", msgspec.json.encode(wrong))

    async def patch(**changes: Any) -> None:
        document = msgspec.json.encode({"metadata": {"labels": MARK}, **changes})
        await judged.patch(kinds.QUEUES, "", "wrong-already", document, patch_type="merge")

    try:
        await patch(spec={"weight": 2})
        with pytest.raises(errors.ExternalError, match="is negative"):
            await patch(spec={"deserved": {"cpu": 1}})
        await patch(spec={"capability": {"cpu": 1}})
    finally:
        await judged.delete(kinds.QUEUES, "", "wrong-already")


@pytest.mark.asyncio(loop_scope="module")
async def test_the_finalizers_of_an_invalid_object_are_removable(judged: port.Cluster) -> None:
    """Without the mark it was created past the policies."""
    dependency = {"name": "a", "dependsOn": {"targets": ["a"]}}
    wrong = manifests.bare_object(kinds.JOB_FLOWS, "wrong-already", spec={"flows": [dependency]})
    wrong["metadata"]["finalizers"] = ["test.example/held"]
    await judged.create(kinds.JOB_FLOWS, "default", msgspec.json.encode(wrong))

    async def patch(metadata: dict[str, Any], **changes: Any) -> None:
        document = msgspec.json.encode({"metadata": {"labels": MARK, **metadata}, **changes})
        await judged.patch(
            kinds.JOB_FLOWS, "default", "wrong-already", document, patch_type="merge"
        )

    await judged.delete(kinds.JOB_FLOWS, "default", "wrong-already")
    with pytest.raises(errors.ExternalError, match="waits for itself"):
        await patch({}, spec={"jobRetainPolicy": "delete"})
    await patch({"finalizers": []})
    with pytest.raises(errors.NotFoundError):
        await judged.get(kinds.JOB_FLOWS, "default", "wrong-already")
