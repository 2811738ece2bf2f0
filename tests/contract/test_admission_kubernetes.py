"""A real API server calls webhooks like the embedded cluster."""

import asyncio
import base64
import contextlib
import pathlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
import trustme
from litestar import Litestar, Request, Response, post
from litestar.params import FromPath

from stromboli.embedded.cluster import Webhook
from stromboli.shared import errors
from stromboli.shared.api import kinds, meta
from stromboli.shared.cluster import port
from stromboli.shared.cluster.kubernetes import KubernetesCluster, KubernetesSettings
from stromboli.shared.runtime import http, runtime
from stromboli.testkit import crds, objects, records
from stromboli.testkit.contracts import admission
from stromboli.testkit.parts import real

pytest_plugins = ["stromboli.testkit.parts.fixtures"]
pytestmark = [pytest.mark.real]

MARKER = "test.example/marker"
CONFIGURATIONS: dict[bool, kinds.Kind[meta.Object]] = {
    mutating: kinds.Kind(
        "admissionregistration.k8s.io",
        "v1",
        f"{word}WebhookConfiguration",
        f"{word.lower()}webhookconfigurations",
        meta.Object,
        namespaced=False,
    )
    for mutating, word in ((True, "Mutating"), (False, "Validating"))
}


def connect(parts: real.RealParts) -> KubernetesCluster:
    return KubernetesCluster(KubernetesSettings(kubeconfig=str(parts.kubeconfig)))


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def definitions(real_parts: real.RealParts) -> None:
    async with connect(real_parts) as opened:
        await crds.apply_crds(opened)


class Webhooks:
    """An HTTPS server with hooks, and the webhook configurations for it.

    A server applies a configuration a moment after it is written. So each configuration has a
    marker: a hook on config maps with a label. When that hook was called, the whole configuration
    is applied.
    """

    def __init__(self, cluster: port.Cluster) -> None:
        self._cluster = cluster
        self._authority = trustme.CA()
        self._hooks: dict[str, Webhook] = {}
        self._marked: set[str] = set()
        self._url = ""

    @contextlib.asynccontextmanager
    async def serving(self, folder: pathlib.Path) -> AsyncIterator[None]:
        """Answer while inside; nothing is left of it afterwards."""
        certificate = self._authority.issue_cert("127.0.0.1")
        chain, key = folder / "chain.pem", folder / "key.pem"
        chain.write_bytes(b"".join(blob.bytes() for blob in certificate.cert_chain_pems))
        key.write_bytes(certificate.private_key_pem.bytes())

        @post("/hooks/{name:str}")
        async def answer(name: FromPath[str], request: Request[Any, Any, Any]) -> Response[bytes]:
            return _json(await self._hooks[name].call(await request.body()))

        @post("/markers/{name:str}")
        async def mark(name: FromPath[str], request: Request[Any, Any, Any]) -> Response[bytes]:
            self._marked.add(name)
            return _json(await admission.answering(admission.allow)(await request.body()))

        app = Litestar([answer, mark], openapi_config=None)
        bound = http.listen("127.0.0.1", 0)
        async with http.serving(
            app, bound, certificate_file=str(chain), key_file=str(key)
        ) as taken:
            self._url = f"https://127.0.0.1:{taken}"
            yield
            await self.install()
            for kind in CONFIGURATIONS.values():
                await self._cluster.delete(kind, "", "contract")

    async def install(self, *hooks: Webhook) -> None:
        """These hooks instead of those before, from the return of this on."""
        self._hooks = {hook.name: hook for hook in hooks}
        marker = objects.unique("marker")
        for mutating, kind in CONFIGURATIONS.items():
            webhooks = [self._webhook(hook) for hook in hooks if hook.mutating == mutating]
            webhooks.append(self._marker(f"{marker}-{mutating}".lower(), marker))
            body = objects.make(kind, "contract", webhooks=webhooks)
            try:
                await self._cluster.create(kind, "", body)
            except errors.AlreadyExistsError:
                await self._cluster.patch(kind, "", "contract", body, patch_type="merge")
        pauses = runtime.Backoff()
        async with asyncio.timeout(records.DEADLINE_S):
            while not {f"{marker}-true", f"{marker}-false"} <= self._marked:
                name = objects.unique("marked")
                body = objects.config_map(name, {"labels": {MARKER: marker}})
                await self._cluster.create(kinds.CONFIG_MAPS, "default", body)
                await self._cluster.delete(kinds.CONFIG_MAPS, "default", name)
                await asyncio.sleep(pauses.next_s())

    def _webhook(self, hook: Webhook) -> dict[str, Any]:
        rule = {
            "apiGroups": [hook.kind.group],
            "apiVersions": [hook.kind.version],
            "resources": [hook.kind.plural],
            "operations": sorted(hook.operations),
        }
        return self._lead(hook.name, f"/hooks/{hook.name}") | {
            "rules": [rule],
            "failurePolicy": hook.failure_policy,
            "timeoutSeconds": round(hook.timeout_s),
        }

    def _marker(self, name: str, label: str) -> dict[str, Any]:
        rule = {
            "apiGroups": [""],
            "apiVersions": ["v1"],
            "resources": ["configmaps"],
            "operations": ["CREATE"],
        }
        return self._lead(f"{name}.test.example", f"/markers/{name}") | {
            "rules": [rule],
            "objectSelector": {"matchLabels": {MARKER: label}},
        }

    def _lead(self, name: str, path: str) -> dict[str, Any]:
        return {
            "name": name,
            "clientConfig": {
                "url": self._url + path,
                "caBundle": base64.b64encode(self._authority.cert_pem.bytes()).decode(),
            },
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
        }


def _json(body: bytes) -> Response[bytes]:
    return Response(body, media_type="application/json", status_code=200)


class TestKubernetesAdmission(admission.AdmissionContract):
    @pytest.fixture
    async def open_cluster(
        self, real_parts: real.RealParts, definitions: None, tmp_path: pathlib.Path
    ) -> AsyncIterator[port.Cluster]:
        async with connect(real_parts) as opened:
            self.webhooks = Webhooks(opened)
            async with self.webhooks.serving(tmp_path):
                yield opened

    async def install(self, *hooks: Webhook) -> None:
        await self.webhooks.install(*hooks)
