"""Of a job that is deleted on a real API server, admission learns by whom."""

import asyncio
import ssl
from typing import Any

import msgspec
import pytest
import trustme

from stromboli.admission.review.service import AdmissionService
from stromboli.admission.settings import AdmissionSettings
from stromboli.admission.webhooks import webhooks
from stromboli.shared.api import kinds, meta
from stromboli.shared.cluster import port
from stromboli.shared.cluster.kubernetes import KubernetesCluster, KubernetesSettings
from stromboli.shared.messages.admission import JobRequested
from stromboli.shared.runtime import http, runtime
from stromboli.testkit import crds, objects, records
from stromboli.testkit.admission_cases import manifests
from stromboli.testkit.parts import real

pytest_plugins = ["stromboli.testkit.parts.fixtures"]
pytestmark = [pytest.mark.real]

CONFIGURATIONS: kinds.Kind[meta.Object] = kinds.Kind(
    "admissionregistration.k8s.io",
    "v1",
    "ValidatingWebhookConfiguration",
    "validatingwebhookconfigurations",
    meta.Object,
    namespaced=False,
)
MARK = {"test.example/deleted": "by-a-user"}
"""The webhook is called only for these objects: other tests share the server."""
ADMINISTRATORS = ("system:masters", "system:authenticated")


def configuration(url: str, authority: bytes, name: str) -> bytes:
    """The webhook for deletions alone."""
    _, document = webhooks.configurations(url, authority)
    found = [it for it in document["webhooks"] if it["rules"][0]["operations"] == ["DELETE"]]
    recording = [it | {"objectSelector": {"matchLabels": MARK}} for it in found[-1:]]
    made: dict[str, Any] = document | {"metadata": {"name": name}, "webhooks": recording}
    return msgspec.json.encode(made)


async def deleted_by(cluster: port.Cluster, user: port.Cluster, name: str) -> str:
    """Create a job and delete it as this user; its uid."""
    job = manifests.job()
    job["metadata"] |= {"name": name, "labels": MARK}
    stored = await cluster.create(kinds.JOBS, "default", msgspec.json.encode(job))
    await user.delete(kinds.JOBS, "default", name)
    return kinds.metadata_of(stored).uid


async def test_a_deletion_is_recorded_with_its_user(real_parts: real.RealParts) -> None:
    settings = KubernetesSettings(kubeconfig=str(real_parts.kubeconfig))
    async with KubernetesCluster(settings) as cluster:
        await crds.apply_crds(cluster)
        admission = AdmissionService(AdmissionSettings(), cluster, runtime.utc_now)
        authority, name = trustme.CA(), objects.unique("deletions").lower()
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        authority.issue_cert("127.0.0.1").configure_cert(tls)
        bound = http.listen("127.0.0.1", 0)
        async with http.serving(webhooks.app(admission), bound, tls=tls) as taken:
            url = f"https://127.0.0.1:{taken}"
            body = configuration(url, authority.cert_pem.bytes(), name)
            await cluster.create(CONFIGURATIONS, "", body)
            ada = cluster.impersonating("ada", ADMINISTRATORS)
            pauses, uid = runtime.Backoff(), ""
            async with asyncio.timeout(records.DEADLINE_S):
                while admission.pending_reviews.empty():  # applied a moment after it is written
                    uid = await deleted_by(cluster, ada, objects.unique("d").lower())
                    await asyncio.sleep(pauses.next_s())
            await cluster.delete(CONFIGURATIONS, "", name)
    message = admission.pending_reviews.get_nowait().message
    assert isinstance(message, JobRequested)
    assert (message.user, message.action, message.uid) == ("ada", "DeleteJob", uid)
    assert message.entry_point == "webhook"
