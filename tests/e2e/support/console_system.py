"""A running system with a console, and a cluster state that shows what its pages are for."""

import contextlib
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import msgspec

from stromboli.client import AsyncClient, calls
from stromboli.console import service
from stromboli.console.settings import ConsoleSettings
from stromboli.embedded import system
from stromboli.embedded.accounts import file as account_files
from stromboli.embedded.cluster import OWN_NAME
from stromboli.embedded.nodes import simulated
from stromboli.shared import keys
from stromboli.shared.cluster.accounts import Accounts
from stromboli.shared.runtime import http, runtime

Document = dict[str, Any]
GPU = "nvidia.com/gpu"
HOUR_S = 3600
ACCOUNTS = """
apiVersion: local.stromboli.sh/v1
kind: Account
metadata: {name: root}
tokens: [{value: root-token, audience: stromboli}]
---
apiVersion: local.stromboli.sh/v1
kind: Account
metadata: {name: vera}
tokens: [{value: vera-token, audience: stromboli}]
---
apiVersion: local.stromboli.sh/v1
kind: Account
metadata: {name: otto}
tokens: [{value: otto-token, audience: stromboli}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: all}
rules: [{apiGroups: ["*"], resources: ["*"], verbs: ["*"]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: all}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: all}
subjects: [{kind: User, name: root, apiGroup: rbac.authorization.k8s.io}]
"""
TENANT = """
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: batch-user, namespace: NAMESPACE}
rules:
- {apiGroups: [batch.volcano.sh], resources: [jobs], verbs: [get, list, watch, create, delete]}
- {apiGroups: [bus.volcano.sh], resources: [commands], verbs: [create]}
- {apiGroups: [scheduling.volcano.sh], resources: [podgroups], verbs: [get, list, watch]}
- {apiGroups: [""], resources: [pods, events], verbs: [get, list, watch]}
- {apiGroups: [""], resources: [pods/log], verbs: [get]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: batch-users, namespace: NAMESPACE}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: batch-user}
subjects: [{kind: User, name: NAME, apiGroup: rbac.authorization.k8s.io}]
"""
TENANTS = {"vera": "vision", "otto": "robots"}
"""User -> the namespace in which they may work."""


class ConsoleSystem(msgspec.Struct, frozen=True):
    """A console at ``url`` over a system at ``server``. ``token`` has all rights."""

    url: str
    server: str
    token: str
    client: AsyncClient

    def browser(self) -> httpx.AsyncClient:
        """A browser without a script engine: it keeps cookies and follows no redirects."""
        return httpx.AsyncClient(base_url=self.url, timeout=30, trust_env=False)

    @contextlib.asynccontextmanager
    async def login(self, token: str = "", namespace: str = "") -> AsyncIterator[httpx.AsyncClient]:
        """A browser that has logged in."""
        form = {"token": token or self.token, "namespace": namespace}
        async with self.browser() as made:
            answer = await made.post("/login", data=form)
            assert answer.status_code == 303, answer.text
            yield made


@contextlib.asynccontextmanager
async def running(
    folder: Path,
    *,
    has_accounts: bool = False,
    nodes: int = 3,
    settings: ConsoleSettings | None = None,
    authenticate: Callable[[Accounts], Accounts] = lambda found: found,
    bound: socket.socket | None = None,
) -> AsyncIterator[ConsoleSystem]:
    """The system while inside; ``nodes`` have 16 cores and 4 GPUs each. ``authenticate``: replaces
    the accounts; ``bound``: the socket of the console."""
    options = system.Options(
        state=folder / "embedded",
        nodes=tuple(simulated.node_documents(nodes, cpu="16", memory="64Gi", gpus=4)),
        accounts=authenticate(accounts(folder)) if has_accounts else None,
    )
    async with contextlib.AsyncExitStack() as stack:
        made = await stack.enter_async_context(system.run_system(options))
        await made.ready()
        token = made.token or "root-token"
        client = await stack.enter_async_context(AsyncClient(made.url, token=token))
        chosen = msgspec.structs.replace(settings or ConsoleSettings(), server=made.url)
        url = await stack.enter_async_context(serving(chosen, bound))
        yield ConsoleSystem(url, made.url, token, client)


@contextlib.asynccontextmanager
async def serving(
    settings: ConsoleSettings, bound: socket.socket | None = None
) -> AsyncIterator[str]:
    """A console while inside; yields its address."""
    bound = bound or http.listen("127.0.0.1", 0)
    async with (
        service.running(settings, runtime.utc_now, bound.getsockname()[1]) as app,
        http.serving(app, bound) as port,
    ):
        yield f"http://127.0.0.1:{port}"


def accounts(folder: Path) -> Accounts:
    """One user with all rights, and two tenants."""
    file = folder / "accounts.yaml"
    roles = (
        TENANT.replace("NAMESPACE", space).replace("NAME", name) for name, space in TENANTS.items()
    )
    file.write_text(ACCOUNTS + "".join(roles))
    return account_files.read(file, OWN_NAME)


def job(
    name: str,
    replicas: int = 1,
    *,
    namespace: str = "default",
    queue: str = "default",
    cpu: str = "1",
    gpus: int = 0,
    minimum: int | None = None,
    run_s: float = HOUR_S,
    image: str = "registry.example/train:1",
    annotations: dict[str, str] | None = None,
    labels: dict[str, str] | None = None,
) -> Document:
    """A job of one task."""
    requests = {"cpu": cpu, "memory": "2Gi"} | ({GPU: str(gpus)} if gpus else {})
    limits = {GPU: str(gpus)} if gpus else {}
    container = {
        "name": "main",
        "image": image,
        "resources": {"requests": requests, "limits": limits},
    }
    template = {
        "metadata": {"annotations": {keys.RUN_SECONDS: str(run_s)}},
        "spec": {"restartPolicy": "Never", "containers": [container]},
    }
    task = {"name": "worker", "replicas": replicas, "template": template}
    metadata: Document = {"name": name, "namespace": namespace}
    metadata |= {"annotations": annotations} if annotations else {}
    metadata |= {"labels": labels} if labels else {}
    spec = {"queue": queue, "minAvailable": minimum or replicas, "tasks": [task]}
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": metadata,
        "spec": spec,
    }


async def fill(made: ConsoleSystem) -> None:
    """A working day: queues that borrow, jobs that run, wait for GPUs and have ended."""
    client = made.client
    for name, weight, deserved, capability in (
        ("research", 2, {"cpu": "16", GPU: "4"}, {"cpu": "48", GPU: "10"}),
        ("production", 4, {"cpu": "32", GPU: "8"}, {"cpu": "48", GPU: "12"}),
    ):
        spec = {"weight": weight, "deserved": deserved, "capability": capability}
        await client.create_queue({"metadata": {"name": name}, "spec": spec})
    for namespace in ("vision", "speech"):
        await client.apply(
            [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}]
        )
    jobs = [
        job("quick-check", 2, run_s=0.2),
        job("resnet50-sweep-07", 4, namespace="vision", queue="research", gpus=1, cpu="2"),
        job("whisper-large-v3", 2, namespace="speech", queue="research", gpus=2, cpu="4"),
        job("serve-eval", 2, namespace="vision", queue="production", gpus=1, cpu="1"),
    ]
    for each in jobs:
        await client.submit(each, namespace=each["metadata"]["namespace"])
    await client.wait("quick-check", "default", timeout_s=60)
    for each in jobs[1:]:
        await client.wait(
            each["metadata"]["name"],
            each["metadata"]["namespace"],
            phases=("Running",),
            timeout_s=60,
        )
    for each in (
        job("llama-finetune-lr3e-5", 2, namespace="vision", queue="research", gpus=4, cpu="8"),
        job("clip-embeddings", 1, namespace="vision", queue="production", gpus=3, cpu="4"),
        job("huge-pretraining", 16, namespace="speech", queue="production", gpus=4, cpu="8"),
        job("tokenize-corpus", 6, namespace="speech", queue="default", cpu="2"),
    ):
        await client.submit(each, namespace=each["metadata"]["namespace"])
    await client.wait("tokenize-corpus", "speech", phases=("Running",), timeout_s=60)
    explanation = calls.watch_explanation("vision", "llama-finetune-lr3e-5")
    async for change in client.watch(explanation, timeout_s=60):
        if change.object is not None and change.object.explained is not None:
            return
    raise AssertionError("no explanation of the pending job")
