"""A running system with a console, and a cluster state that shows what its pages are for."""

import contextlib
import socket
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx
import msgspec

from stromboli.client import AsyncClient
from stromboli.client.operations import calls
from stromboli.console import service
from stromboli.console.settings import ConsoleSettings
from stromboli.embedded import system
from stromboli.embedded.accounts import file as account_files
from stromboli.embedded.cluster import OWN_NAME
from stromboli.embedded.nodes import simulated
from stromboli.scheduler.settings import SchedulerSettings
from stromboli.shared import keys
from stromboli.shared.cluster.accounts import Accounts
from stromboli.shared.runtime import http, runtime

Document = dict[str, Any]
GPU = "nvidia.com/gpu"
HOUR_S = 3600
READY_WITHIN_S = 180.0
"""How long a job may take to run: other tests share the machine."""
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
- {apiGroups: [batch.volcano.sh], resources: [cronjobs], verbs: [get, list, watch]}
- {apiGroups: [flow.volcano.sh], resources: [jobflows], verbs: [get, list, watch]}
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
PREEMPTING = """
actions: "allocate, preempt, backfill"
tiers:
- plugins:
  - name: priority
  - name: gang
  - name: conformance
- plugins:
  - name: drf
    enablePreemptable: false
  - name: predicates
  - name: proportion
  - name: nodeorder
"""
"""Sessions that also preempt within a queue. Without *enqueue*: it admits no gang for which its
queue has no room."""
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
        # Loading the system's certificates, which http does not need, costs 25 ms of CPU.
        return httpx.AsyncClient(base_url=self.url, timeout=30, trust_env=False, verify=False)

    @contextlib.asynccontextmanager
    async def login(self, token: str = "", namespace: str = "") -> AsyncIterator[httpx.AsyncClient]:
        """A browser that has logged in."""
        form = {"token": token or self.token, "namespace": namespace}
        async with self.browser() as async_client:
            answer = await async_client.post("/login", data=form)
            assert answer.status_code == 303, answer.text
            yield async_client


@contextlib.asynccontextmanager
async def running(
    folder: Path,
    *,
    has_accounts: bool = False,
    nodes: int = 3,
    settings: ConsoleSettings | None = None,
    authenticate: Callable[[Accounts], Accounts] = lambda found: found,
    bound: socket.socket | None = None,
    preempts: bool = False,
) -> AsyncIterator[ConsoleSystem]:
    """The system while inside; ``nodes`` have 16 cores and 4 GPUs each. ``authenticate``: replaces
    the accounts; ``bound``: the socket of the console. ``preempts``: jobs with a higher priority
    evict others of their queue."""
    configuration = folder / "scheduler.yaml"
    configuration.write_text(PREEMPTING)
    options = system.Options(
        state=folder / "embedded",
        scheduler=SchedulerSettings(configuration=str(configuration) if preempts else ""),
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
    priority: str = "",
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
        "metadata": {
            "annotations": {keys.RUN_SECONDS: str(run_s), keys.PREEMPTABLE: "true"},
        },
        "spec": {"restartPolicy": "Never", "containers": [container]},
    }
    task = {"name": "worker", "replicas": replicas, "template": template}
    metadata: Document = {"name": name, "namespace": namespace}
    metadata |= {"annotations": annotations} if annotations else {}
    metadata |= {"labels": labels} if labels else {}
    spec: Document = {"queue": queue, "minAvailable": minimum or replicas, "tasks": [task]}
    spec |= {"priorityClassName": priority} if priority else {}
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": metadata,
        "spec": spec,
    }


def queue(name: str) -> Document:
    """An open queue below the root."""
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": {"weight": 1},
    }


def flow(
    name: str, steps: dict[str, tuple[str, ...]], *, namespace: str = "default", run_s: float
) -> list[Document]:
    """A flow of small jobs with its templates. ``steps``: name -> the steps before it; those
    without any run ``run_s``, the others for hours."""
    head = {"apiVersion": "flow.volcano.sh/v1alpha1"}
    templates = [
        {
            **head,
            "kind": "JobTemplate",
            "metadata": {"name": step, "namespace": namespace},
            "spec": job(step, cpu="100m", run_s=HOUR_S if before else run_s)["spec"],
        }
        for step, before in steps.items()
    ]
    flows = [
        {"name": step, **({"dependsOn": {"targets": list(before)}} if before else {})}
        for step, before in steps.items()
    ]
    metadata = {"name": name, "namespace": namespace}
    spec = {"jobRetainPolicy": "retain", "flows": flows}
    return [*templates, {**head, "kind": "JobFlow", "metadata": metadata, "spec": spec}]


def cron(name: str, schedule: str, zone: str, *, namespace: str = "default") -> Document:
    """A cron of a small job."""
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "CronJob",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "schedule": schedule,
            "timeZone": zone,
            "concurrencyPolicy": "Forbid",
            "jobTemplate": {"spec": job(name, cpu="100m")["spec"]},
        },
    }


def priority_class(name: str, value: int) -> Document:
    """A PriorityClass."""
    head = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
    return {**head, "metadata": {"name": name}, "value": value}


def hyper_nodes(racks: Mapping[str, Sequence[str]], spine: str) -> list[Document]:
    """HyperNodes: racks of nodes by name, below one spine."""

    def made(name: str, tier: int, tier_name: str, kind: str, members: Iterable[str]) -> Document:
        parts = [{"type": kind, "selector": {"exactMatch": {"name": it}}} for it in members]
        return {
            "apiVersion": "topology.volcano.sh/v1alpha1",
            "kind": "HyperNode",
            "metadata": {"name": name},
            "spec": {"tier": tier, "tierName": tier_name, "members": parts},
        }

    leaves = [made(name, 1, "rack", "Node", members) for name, members in racks.items()]
    return [*leaves, made(spine, 2, "spine", "HyperNode", racks)]


async def preempt(console_system: ConsoleSystem, namespace: str, loser: str, winner: str) -> None:
    """Two jobs of one queue for the last GPUs: the second one, which is urgent, evicts a pod of
    the first one."""
    await console_system.client.apply([priority_class("urgent", 1000)])
    victim = job(loser, 2, namespace=namespace, gpus=1, minimum=1)
    await console_system.client.submit(victim, namespace=namespace)
    await console_system.client.wait(
        loser, namespace, phases=("Running",), timeout_s=READY_WITHIN_S
    )
    urgent = job(winner, namespace=namespace, gpus=1, priority="urgent")
    await console_system.client.submit(urgent, namespace=namespace)
    await console_system.client.wait(
        winner, namespace, phases=("Running",), timeout_s=READY_WITHIN_S
    )


STEPS = {
    "prepare": (),
    "train-small": ("prepare",),
    "train-large": ("prepare",),
    "evaluate": ("train-small", "train-large"),
    "report": ("evaluate",),
    "publish": ("evaluate", "prepare"),
}
"""The steps of a flow -> the steps before each."""


async def fill(console_system: ConsoleSystem) -> None:
    """A working day: queues that borrow, jobs that run, wait for GPUs and have ended."""
    client = console_system.client
    for name, weight, deserved, capability in (
        ("research", 2, {"cpu": "16", GPU: "4"}, {"cpu": "48", GPU: "10"}),
        ("production", 4, {"cpu": "32", GPU: "8"}, {"cpu": "48", GPU: "12"}),
    ):
        spec = {"weight": weight, "deserved": deserved, "capability": capability}
        await client.create_queue({"metadata": {"name": name}, "spec": spec})
    await client.apply(hyper_nodes({"rack-a": ("node-00", "node-01")}, "spine-0"))
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
    await client.wait("quick-check", "default", timeout_s=READY_WITHIN_S)
    for each in jobs[1:]:
        await client.wait(
            each["metadata"]["name"],
            each["metadata"]["namespace"],
            phases=("Running",),
            timeout_s=READY_WITHIN_S,
        )
    await preempt(console_system, "vision", "distill-student", "hotfix-eval")
    await client.apply(flow("nightly", STEPS, namespace="vision", run_s=0.2))
    await client.apply(
        [
            cron("weekly-report", "15 2 * * 1", "Europe/Berlin", namespace="vision"),
            cron("cleanup", "0 */4 * * *", "UTC", namespace="speech"),
        ]
    )
    for each in (
        job("llama-finetune-lr3e-5", 2, namespace="vision", queue="research", gpus=4, cpu="8"),
        job("clip-embeddings", 1, namespace="vision", queue="production", gpus=3, cpu="4"),
        job("huge-pretraining", 16, namespace="speech", queue="production", gpus=4, cpu="8"),
        job("tokenize-corpus", 6, namespace="speech", queue="default", cpu="2"),
    ):
        await client.submit(each, namespace=each["metadata"]["namespace"])
    await client.wait("tokenize-corpus", "speech", phases=("Running",), timeout_s=READY_WITHIN_S)
    await client.wait(
        "nightly-train-large", "vision", phases=("Running",), timeout_s=READY_WITHIN_S
    )
    explanation = calls.watch_explanation("vision", "llama-finetune-lr3e-5")
    async for change in client.watch(explanation, timeout_s=READY_WITHIN_S):
        if change.object is not None and change.object.explained is not None:
            return
    raise AssertionError("no explanation of the pending job")
