"""The behaviour of a ``Cluster`` with webhooks. An adapter's tests subclass the contract and define
how webhooks are registered::

    class TestMyAdmission(admission.AdmissionContract):
        @pytest.fixture
        async def open_cluster(self) -> AsyncIterator[port.Cluster]: ...

        async def install(self, *hooks: Hook) -> None: ...

Webhooks of a test are removed when its cluster fixture ends.
"""

import abc
import base64
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from stromboli.embedded.cluster import Webhook
from stromboli.shared import errors
from stromboli.shared.api import kinds
from stromboli.shared.cluster import port
from stromboli.testkit import objects
from stromboli.testkit.contracts import cluster

JOBS = kinds.JOBS
Request = dict[str, Any]
Answer = dict[str, Any]
ALL = frozenset({"CREATE", "UPDATE", "DELETE"})


def answering(decide: Callable[[Request], Answer]) -> Callable[[bytes], Awaitable[bytes]]:
    """A webhook whose response to each request is the result of ``decide``."""

    async def call(body: bytes) -> bytes:
        review = msgspec.json.decode(body)
        answer = {"uid": review["request"]["uid"], **decide(review["request"])}
        return msgspec.json.encode(
            {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": answer}
        )

    return call


def allow(_: Request) -> Answer:
    """The response that allows any object."""
    return {"allowed": True}


def deny(_: Request) -> Answer:
    """The response that denies any object."""
    return {"allowed": False, "status": {"message": "spec.minAvailable: too many"}}


def label(_: Request) -> Answer:
    """The response that allows any object and adds a label."""
    patch = objects.operations(("add", "/metadata/labels", {"hooked": "yes"}))
    return {
        "allowed": True,
        "patchType": "JSONPatch",
        "patch": base64.b64encode(patch).decode(),
    }


class RecordingWebhook(list[Request]):
    """A webhook that records its requests."""

    def __call__(self, request: Request) -> Answer:
        self.append(request)
        return {"allowed": True}


class AdmissionContract(cluster.ClusterScope, abc.ABC):
    """The tests of how an API server calls webhooks."""

    @abc.abstractmethod
    async def install(self, *hooks: Webhook) -> None:
        """Register exactly these webhooks; returns when they are in effect."""

    async def test_a_mutating_webhook_changes_the_stored_object(
        self, open_cluster: port.Cluster, namespace: str
    ) -> None:
        await self.install(_hook(label, mutating=True))
        created = await open_cluster.create(JOBS, namespace, objects.job("j"))
        assert objects.read(created)["metadata"]["labels"] == {"hooked": "yes"}

    async def test_a_validating_webhook_receives_the_object_to_be_stored(
        self, open_cluster: port.Cluster, namespace: str
    ) -> None:
        """The object contains defaults and the changes of mutating webhooks."""
        requested = RecordingWebhook()
        await self.install(_hook(requested), _hook(label, mutating=True))
        await open_cluster.create(JOBS, namespace, objects.job("j"))
        (request,) = requested
        assert (request["operation"], request["name"]) == ("CREATE", "j")
        assert request["namespace"] == namespace
        assert request["kind"] == {
            "group": "batch.volcano.sh",
            "version": "v1alpha1",
            "kind": "Job",
        }
        assert request["resource"]["resource"] == "jobs"
        assert request["userInfo"]["username"]
        assert request["object"]["metadata"]["labels"] == {"hooked": "yes"}
        assert request["object"]["spec"]["queue"] == "default"
        assert request["oldObject"] is None
        assert not request.get("dryRun")

    async def test_a_denial_has_a_reason_and_stores_nothing(
        self, open_cluster: port.Cluster, namespace: str
    ) -> None:
        await self.install(_hook(deny))
        with pytest.raises(errors.InvalidError, match=r"spec\.minAvailable: too many"):
            await open_cluster.create(JOBS, namespace, objects.job("j"))
        assert (await open_cluster.list(JOBS, namespace)).items == ()

    async def test_webhooks_are_called_for_changes_and_deletions(
        self, open_cluster: port.Cluster, namespace: str
    ) -> None:
        """They receive the previous and the new object."""
        requested = RecordingWebhook()
        await self.install(_hook(requested))
        await open_cluster.create(JOBS, namespace, objects.job("j"))
        patch = objects.merge(spec={"minAvailable": 2})
        await open_cluster.patch(JOBS, namespace, "j", patch, patch_type="merge")
        await open_cluster.delete(JOBS, namespace, "j")
        _, update, delete = requested
        assert update["operation"] == "UPDATE"
        assert update["oldObject"]["spec"]["minAvailable"] == 1
        assert update["object"]["spec"]["minAvailable"] == 2
        assert delete["operation"] == "DELETE"
        assert delete["oldObject"]["metadata"]["name"] == "j"
        assert delete["object"] is None

    async def test_webhooks_are_called_only_for_their_rules(
        self, open_cluster: port.Cluster, namespace: str
    ) -> None:
        """They are not called for other kinds and operations, nor for the status subresource."""
        await self.install(_hook(deny, operations=frozenset({"DELETE"})))
        await open_cluster.create(JOBS, namespace, objects.job("j"))
        await open_cluster.create(kinds.CONFIG_MAPS, namespace, objects.config_map("c"))
        await open_cluster.delete(kinds.CONFIG_MAPS, namespace, "c")
        with pytest.raises(errors.InvalidError):
            await open_cluster.delete(JOBS, namespace, "j")
        await self.install(_hook(deny, operations=frozenset({"UPDATE"})))
        await open_cluster.patch(
            JOBS,
            namespace,
            "j",
            objects.merge(status={"pending": 1}),
            patch_type="merge",
            subresource="status",
        )

    async def test_a_webhook_that_fails_refuses_or_is_ignored(
        self, open_cluster: port.Cluster, namespace: str
    ) -> None:
        """The failure policy of the webhook decides."""
        await self.install(_hook(_fail, failure_policy="Ignore"))
        await open_cluster.create(JOBS, namespace, objects.job("ignored"))
        await self.install(_hook(_fail))
        with pytest.raises(errors.ExternalError):
            await open_cluster.create(JOBS, namespace, objects.job("refused"))
        with pytest.raises(errors.NotFoundError):
            await open_cluster.get(JOBS, namespace, "refused")

    async def test_an_object_mutated_by_webhooks_must_match_its_schema(
        self, open_cluster: port.Cluster, namespace: str
    ) -> None:
        await self.install(_hook(_break, mutating=True))
        with pytest.raises(errors.InvalidError, match=r"spec\.minAvailable"):
            await open_cluster.create(JOBS, namespace, objects.job("j"))


def _fail(_: Request) -> Answer:
    raise RuntimeError("this webhook is broken")


def _break(_: Request) -> Answer:
    patch = objects.operations(("replace", "/spec/minAvailable", "two"))
    return label(_) | {"patch": base64.b64encode(patch).decode()}


def _hook(decide: Callable[[Request], Answer], **rest: Any) -> Webhook:
    given = {"operations": ALL, "mutating": False, **rest}
    name = f"{objects.unique('hook')}.test.example"
    return Webhook(name=name, kind=JOBS, call=answering(decide), **given)
