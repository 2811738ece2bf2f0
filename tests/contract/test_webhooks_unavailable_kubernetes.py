"""With unreachable webhooks, a real API server accepts all objects that Stromboli does not handle,
all pods, and the requests that running jobs need.
"""

import asyncio
import copy
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
import pytest_asyncio
import trustme

from stromboli.admission.webhooks import webhooks
from stromboli.shared import errors, keys
from stromboli.shared.api import kinds, meta
from stromboli.shared.cluster import port
from stromboli.shared.cluster.kubernetes import KubernetesCluster, KubernetesSettings
from stromboli.shared.jobspec import policies
from stromboli.shared.runtime import runtime
from stromboli.testkit import crds, objects, records
from stromboli.testkit.admission_cases import manifests as documents
from stromboli.testkit.parts import real

pytest_plugins = ["stromboli.testkit.parts.fixtures"]
pytestmark = [pytest.mark.real]

MARK = {"test.example/door": "shut"}
"""Webhooks and policies apply only to these objects: other tests share the server."""
UNREACHABLE = "https://127.0.0.1:1"
NAME = "shut"
CONFIGURATION_KINDS: dict[str, kinds.Kind[meta.Object]] = {
    kind: kinds.Kind(
        "admissionregistration.k8s.io", "v1", kind, plural, meta.Object, namespaced=False
    )
    for kind, plural in (
        ("MutatingWebhookConfiguration", "mutatingwebhookconfigurations"),
        ("ValidatingWebhookConfiguration", "validatingwebhookconfigurations"),
        ("ValidatingAdmissionPolicy", "validatingadmissionpolicies"),
        ("ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings"),
    )
}
TEMPLATE_OF_OTHERS = {"spec": documents.job(schedulerName="other")["spec"]}


def installed() -> list[dict[str, Any]]:
    """As it is installed with webhooks: these, and the policy for pods."""
    authority = trustme.CA().cert_pem.bytes()
    made = [*webhooks.configurations(UNREACHABLE, authority, resource_groups=True)]
    for configuration in made:
        configuration["metadata"]["name"] = NAME
        for webhook in configuration["webhooks"]:
            webhook["objectSelector"] = {"matchLabels": MARK}
    for document in policies.documents(kinds.PODS.plural):
        document["metadata"]["name"] = NAME
        if document["kind"].endswith("Binding"):
            document["spec"]["policyName"] = NAME
            document["spec"]["matchResources"] = {"objectSelector": {"matchLabels": MARK}}
        made.append(document)
    return made


def marked(document: dict[str, Any], name: str = "") -> bytes:
    made = copy.deepcopy(document)
    made["metadata"] |= {"labels": MARK, "name": name or objects.unique("d").lower()}
    return msgspec.json.encode(made)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shut(real_parts: real.RealParts) -> AsyncIterator[port.Cluster]:
    """A server with unreachable webhooks, and a job that was created before."""
    async with KubernetesCluster(
        KubernetesSettings(kubeconfig=str(real_parts.kubeconfig))
    ) as kubernetes_cluster:
        await crds.apply_crds(kubernetes_cluster)
        await kubernetes_cluster.create(kinds.JOBS, "default", marked(documents.job(), "of-before"))
        held = documents.bare_object(kinds.JOB_FLOWS, "f", spec={"flows": []})
        held["metadata"]["finalizers"] = ["test.example/held"]
        await kubernetes_cluster.create(kinds.JOB_FLOWS, "default", marked(held, "of-before"))
        found = [(CONFIGURATION_KINDS[it["kind"]], it) for it in installed()]
        for kind, document in found:
            await kubernetes_cluster.create(kind, "", msgspec.json.encode(document))
        pauses = runtime.Backoff()
        async with asyncio.timeout(records.DEADLINE_S):
            while await any_taken(kubernetes_cluster):  # noqa: ASYNC110 - nobody tells when it is heeded
                await asyncio.sleep(pauses.next_s())
        yield kubernetes_cluster
        for kind, _ in found:
            await kubernetes_cluster.delete(kind, "", NAME)


async def any_taken(cluster: port.Cluster) -> bool:
    """Whether one of the configurations is not heeded yet: each refuses one of these alone."""
    wrong_pod = documents.pod(**{keys.JDB_MIN_AVAILABLE: "some"})
    requested = (
        (kinds.JOBS, documents.job()),
        (kinds.CRON_JOBS, documents.cron()),
        (kinds.PODS, wrong_pod),
    )
    return any([await taken(cluster, kind, document) for kind, document in requested])


async def taken(cluster: port.Cluster, kind: kinds.Kind[Any], document: dict[str, Any]) -> bool:
    """Whether the server takes it; nothing is left of it."""
    namespace, body = "default" if kind.namespaced else "", marked(document)
    try:
        await cluster.create(kind, namespace, body)
    except (errors.ExternalError, errors.InvalidError, errors.ForbiddenError):
        return False
    await cluster.delete(kind, namespace, msgspec.json.decode(body)["metadata"]["name"])
    return True


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    ("kind", "document", "is_taken"),
    [
        pytest.param(kinds.PODS, documents.pod("default-scheduler"), True, id="others pod"),
        pytest.param(kinds.PODS, documents.pod("volcano"), True, id="our pod"),
        pytest.param(
            kinds.PODS,
            documents.pod("default-scheduler", **{keys.JDB_MIN_AVAILABLE: "some"}),
            True,
            id="others pod with what is wrong only in ours",
        ),
        pytest.param(kinds.JOBS, documents.job(schedulerName="other"), True, id="others job"),
        pytest.param(
            kinds.CRON_JOBS,
            documents.cron(jobTemplate=TEMPLATE_OF_OTHERS),
            True,
            id="others cron",
        ),
        pytest.param(kinds.JOBS, documents.job(), False, id="our job"),
        pytest.param(kinds.JOBS, documents.job(schedulerName=""), False, id="job of nobody"),
        pytest.param(kinds.QUEUES, documents.queue("q"), False, id="queue"),
        pytest.param(kinds.POD_GROUPS, documents.pod_group(queue="default"), False, id="gang"),
    ],
)
async def test_unreachable_webhooks_block_only_objects_of_stromboli(
    shut: port.Cluster, kind: kinds.Kind[Any], document: dict[str, Any], is_taken: bool
) -> None:
    assert await taken(shut, kind, document) == is_taken


@pytest.mark.asyncio(loop_scope="module")
async def test_an_existing_job_continues_with_its_gang_its_pods_and_its_status(
    shut: port.Cluster,
) -> None:
    job = kinds.JOBS.decode(await shut.get(kinds.JOBS, "default", "of-before"))
    gang = documents.pod_group(queue="default")
    gang["metadata"]["ownerReferences"] = [
        {
            "apiVersion": kinds.JOBS.api_version,
            "kind": kinds.JOBS.kind,
            "name": job.metadata.name,
            "uid": job.metadata.uid,
            "controller": True,
        }
    ]
    assert await taken(shut, kinds.POD_GROUPS, gang)
    status = objects.merge(status={"state": {"phase": "Running"}})
    await shut.patch(
        kinds.JOBS, "default", "of-before", status, patch_type="merge", subresource="status"
    )
    await shut.delete(kinds.JOBS, "default", "of-before")


@pytest.mark.asyncio(loop_scope="module")
async def test_a_deleted_object_loses_its_finalizers(shut: port.Cluster) -> None:
    """The garbage collector removes them while admission is unavailable, too."""
    await shut.delete(kinds.JOB_FLOWS, "default", "of-before")
    with pytest.raises(errors.ExternalError):
        await shut.patch(
            kinds.JOB_FLOWS,
            "default",
            "of-before",
            objects.merge(metadata={"annotations": {"test.example/note": "x"}}),
            patch_type="merge",
        )
    await shut.patch(
        kinds.JOB_FLOWS,
        "default",
        "of-before",
        objects.merge(metadata={"finalizers": []}),
        patch_type="merge",
    )
    with pytest.raises(errors.NotFoundError):
        await shut.get(kinds.JOB_FLOWS, "default", "of-before")
