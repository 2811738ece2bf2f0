"""A policy of the cluster that denies binds, on a real API server."""

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
import pytest

from stromboli.shared import errors
from stromboli.shared.api import kinds, meta
from stromboli.shared.cluster import port
from stromboli.shared.cluster.kubernetes import KubernetesCluster, KubernetesSettings
from tests.e2e.conftest import Real
from tests.e2e.support import polling
from tests.e2e.support.rest_user import LONG_S, WITHIN_S, Document, User, job

pytestmark = pytest.mark.timeout(300)  # starting the real parts counts, on a busy machine, too
GROUP, VERSION, NAME = "admissionregistration.k8s.io", "v1", "no-denied-pods"
WHY = "pods of this job are denied"
POLICIES, BINDINGS = (
    kinds.Kind(GROUP, VERSION, kind, f"{kind.lower()[:-1]}{end}", meta.Object, namespaced=False)
    for kind, end in (
        ("ValidatingAdmissionPolicy", "ies"),
        ("ValidatingAdmissionPolicyBinding", "gs"),
    )
)


def _document(kind: kinds.Kind[meta.Object], **spec: object) -> bytes:
    names = {"apiVersion": f"{GROUP}/{VERSION}", "kind": kind.kind, "metadata": {"name": NAME}}
    return msgspec.json.encode({**names, "spec": spec})


BINDS = {
    "apiGroups": [""],
    "apiVersions": ["v1"],
    "operations": ["CREATE"],
    "resources": ["pods/binding"],
}
POLICY = _document(
    POLICIES,
    matchConstraints={"resourceRules": [BINDS]},
    validations=[{"expression": "!request.name.startsWith('denied-')", "message": WHY}],
)
BINDING = _document(BINDINGS, policyName=NAME, validationActions=["Deny"])


async def _deny(cluster: port.Cluster) -> None:
    """The API server enforces a policy some time after it was created."""
    await cluster.create(POLICIES, "", POLICY)
    await cluster.create(BINDINGS, "", BINDING)
    async with asyncio.timeout(WITHIN_S):
        while True:
            try:
                await cluster.bind("default", "denied-x", uid="", node="n", annotations={})
            except errors.NotFoundError:
                await asyncio.sleep(polling.POLL_EVERY_S)
            except errors.PermanentError as error:
                if WHY in error.reason:
                    return
                raise


async def _allow(cluster: port.Cluster) -> None:
    await cluster.delete(BINDINGS, "", NAME)
    await cluster.delete(POLICIES, "", NAME)


@pytest.mark.parametrize("system", [pytest.param("real", marks=pytest.mark.real)], indirect=True)
def test_a_gang_waits_while_a_policy_denies_its_binds_and_starts_afterwards(system: Real) -> None:
    """The policy's text is in the explanation, and other jobs start meanwhile. A gang is bound once
    the controller has read the policy, which it does every 10 s: until then its pods are created
    with their nodes, without a Binding."""

    def change(call: Callable[[port.Cluster], Awaitable[None]]) -> None:
        async def connected() -> None:
            settings = KubernetesSettings(kubeconfig=str(system.kubeconfig))
            async with KubernetesCluster(settings) as cluster:
                await call(cluster)

        asyncio.run(connected())

    def nodes(name: str) -> list[str]:
        pods: list[Document] = user.pods(name)
        return [pod["spec"].get("nodeName", "") for pod in pods]

    def is_created_bound() -> bool:
        user.submit(job("denied-early", LONG_S, pods=2, minAvailable=2))
        found = user.until(lambda: nodes("denied-early"), lambda names: len(names) == 2)
        user.delete("denied-early")
        user.until(user.names, lambda names: "denied-early" not in names)
        return all(found)

    user = User(system.url)
    try:
        change(_deny)
        user.until(is_created_bound, lambda created_bound: not created_bound)
        user.submit(job("denied", LONG_S, pods=2, minAvailable=2))
        said = user.until(lambda: user.strom("explain", "denied"), lambda text: WHY in text)
        assert "denied is pending: the API server refused its binds or the" in said
        user.submit(job("allowed", LONG_S, pods=2, minAvailable=2))
        user.comes_to("allowed", "Running")
        assert nodes("denied") == ["", ""]
        change(_allow)
        user.comes_to("denied", "Running")
        assert all(nodes("denied"))
    finally:
        for name in user.names():
            if name in ("denied", "denied-early", "allowed"):
                user.delete(name)
        user.close()
