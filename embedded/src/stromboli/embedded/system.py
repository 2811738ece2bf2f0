"""The embedded mode: log, cluster, nodes and the five services in one process.

The services run the same code as on Kafka and Kubernetes; only the adapters differ. Log and cluster
are durable below one folder and share no transaction.
"""

import asyncio
import contextlib
import os
import shutil
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import msgspec

from stromboli.admission import service
from stromboli.admission.auth import authentication
from stromboli.admission.rest import application
from stromboli.admission.review.service import AdmissionService
from stromboli.admission.settings import AdmissionSettings
from stromboli.admission.webhooks import webhooks
from stromboli.client import server
from stromboli.controller import service as controller
from stromboli.controller.settings import ControllerSettings
from stromboli.embedded import history_service, session_server, state_folder, volume_controller
from stromboli.embedded.bus import EmbeddedBus
from stromboli.embedded.cluster import OWN_NAME, EmbeddedCluster, Kubelet, Webhook, new_uid
from stromboli.embedded.fault_injection import FaultyBus, FaultyCluster
from stromboli.embedded.nodes import rules as rule_files
from stromboli.embedded.nodes import simulated
from stromboli.embedded.pod_sessions import EmbeddedPodSessions
from stromboli.embedded.processes import agent, data_caches, machine, pod_usage
from stromboli.monitor import agent_receiver
from stromboli.monitor import service as monitor
from stromboli.monitor.agent_receiver import AgentReceiver
from stromboli.monitor.settings import MonitorSettings
from stromboli.scheduler import service as scheduler
from stromboli.scheduler.settings import SchedulerSettings
from stromboli.shared import errors, loopback_token
from stromboli.shared.bus import port as bus_port
from stromboli.shared.cluster import port as cluster_port
from stromboli.shared.cluster.accounts import Accounts
from stromboli.shared.runtime import http, runtime

LOOPBACK = "127.0.0.1"
USUAL_PORT = 8480
DATA_ORIGINS = ("https://", "file:///")
"""Process nodes run commands of the user as this user, who can read all of these anyway."""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a system.

    ``state``: the folder of the log, the cluster and all other state; a restart on the same folder
    continues. ``nodes``: manifests of simulated nodes to create if they are missing.
    ``process_nodes``: manifests of nodes that run processes, see ``processes``. ``port`` 0 selects
    a free one; a port in use is replaced by the next free one if ``port_may_move``. ``fault_seed``:
    the seed of fault injection into log and cluster, for tests. ``accounts``: users and rights, see
    ``stromboli.embedded.accounts``; without them, the holder of the token that is generated at each
    start has all rights. ``notifications``: the file with the targets of notifications; empty for
    none. ``data_origins``: which URIs of data sets process nodes may read. ``data_capacity_bytes``:
    the size of each node's cache; 0 for a share of half of the free disk. ``visible``: further
    paths that isolated containers on process nodes see; None if containers are not isolated.
    """

    state: Path
    nodes: tuple[dict[str, Any], ...] = ()
    process_nodes: tuple[dict[str, Any], ...] = ()
    rules: rule_files.Rules = rule_files.Rules()
    port: int = 0
    port_may_move: bool = False
    fault_seed: int | None = None
    scheduler: SchedulerSettings = SchedulerSettings()
    accounts: Accounts | None = None
    notifications: str = ""
    data_origins: tuple[str, ...] = DATA_ORIGINS
    data_capacity_bytes: int = 0
    visible: list[str] | None = None


class System(msgspec.Struct, frozen=True):
    """A running system. ``view``: the view that containers on process nodes have of the machine,
    and why no better one is available; empty without such nodes. ``agents_url``: where node agents
    report. ``token``: required by REST and the agents' port; empty with accounts.
    """

    url: str
    cluster: cluster_port.Cluster
    healths: tuple[runtime.Health, ...]
    view: tuple[str, str] = ("", "")
    agents_url: str = ""
    token: str = ""

    def client(self) -> httpx.AsyncClient:
        """Return an HTTP client of REST."""
        return httpx.AsyncClient(**server.httpx_options(self.url, server.ANSWER_WITHIN_S))

    async def ready(self) -> None:
        """Wait until every service is ready."""
        for health in self.healths:
            await health.ready()


@contextlib.asynccontextmanager
async def run_system(
    options: Options,
    clock: runtime.Clock = runtime.utc_now,
    ids: Callable[[], str] = new_uid,
) -> AsyncIterator[System]:
    """Run the system inside the context. Leaving stops it; no acknowledged write is lost.

    ``ids`` generates the uids of objects.

    If a service fails, the whole system ends with its error.
    """
    state_folder.make_private(options.state)
    async with contextlib.AsyncExitStack() as stack:
        admissions: list[AdmissionService] = []
        kubelets: dict[str, Kubelet] = {}
        bus: bus_port.Bus = await stack.enter_async_context(
            EmbeddedBus(options.state / state_folder.LOG)
        )
        cluster: cluster_port.Cluster = await stack.enter_async_context(
            EmbeddedCluster(
                options.state / "cluster.db",
                clock=clock,
                ids=ids,
                hooks=_webhooks(admissions),
                kubelets=kubelets,
            )
        )
        settings = AdmissionSettings(service_accounts=(OWN_NAME,))
        authenticator = None
        if options.accounts is not None:
            authenticator = authentication.Authenticator(
                options.accounts, settings.reviews_kept_s, time.monotonic
            )
        admissions.append(AdmissionService(settings, cluster, clock, authenticator))
        healths = {
            name: runtime.Health(name)
            for name in ("admission", "monitor", "scheduler", "controller")
        }
        history_health = runtime.Health("history")
        history_health.set("history", None)
        admissions[0].history = history = history_service.EmbeddedHistory()
        token = loopback_token.new_token() if authenticator is None else ""
        app = application.rest_application(
            admissions[0],
            cluster,
            settings,
            (*healths.values(), history_health),
            authenticator,
            token=token,
            hosts=loopback_token.HOSTS,
        )
        bound = http.listen_near(LOOPBACK, options.port, may_move=options.port_may_move)
        port = await stack.enter_async_context(http.serving(app, bound))
        file = loopback_token.file_of(port, os.environ)
        stack.enter_context(loopback_token.publish_token(token, file))
        await stack.enter_async_context(admissions[0].watch_caches)
        node_agents = AgentReceiver(
            MonitorSettings(), options.accounts, cluster, clock, time.monotonic, token=token
        )
        agents_port = await stack.enter_async_context(
            http.serving(agent_receiver.app(node_agents), http.listen(LOOPBACK, 0))
        )
        await simulated.create_nodes(cluster, list(options.nodes))
        view = await _view(options)
        visible = options.visible
        if visible is not None:
            visible = await machine.isolating(*view, visible)

        def bus_of(service_name: str) -> bus_port.Bus:
            if options.fault_seed is None:
                return bus
            return FaultyBus(bus, seed=f"{options.fault_seed}/{service_name}")

        def cluster_of(service_name: str) -> cluster_port.Cluster:
            if options.fault_seed is None:
                return cluster
            return FaultyCluster(cluster, seed=f"{options.fault_seed}/{service_name}")

        process_nodes = agent.ProcessNodeAgent(
            cluster_of("nodes"),
            options.process_nodes,
            (options.state / "pods").resolve(),
            clock,
            view[0],
            machine.image_runtime(),
            _data_caches(options, node_agents, clock),
            visible,
            _pod_usage(options, node_agents, clock),
        )
        kubelets.update(dict.fromkeys(process_nodes.nodes, process_nodes))
        sessions = session_server.SessionServer(
            EmbeddedPodSessions(cluster, dict.fromkeys(process_nodes.nodes, process_nodes)),
            session_server.authorizer(authenticator, settings, token),
            loopback_token.HOSTS,
        )
        admissions[0].pod_sessions_url = await stack.enter_async_context(
            session_server.serving(sessions)
        )
        await agent.mark_stale_nodes_not_ready(cluster, process_nodes.nodes, clock())
        work = (
            service.serve(
                admissions[0],
                settings,
                bus_of("admission"),
                healths["admission"],
                clock,
                "embedded",
            ),
            monitor.serve(
                MonitorSettings(),
                bus_of("monitor"),
                cluster_of("monitor"),
                healths["monitor"],
                clock,
                node_agents,
            ),
            scheduler.serve(options.scheduler, bus_of("scheduler"), healths["scheduler"], clock),
            controller.serve(
                # The embedded cluster enforces no admission policies.
                ControllerSettings(bound_pods=False),
                bus_of("controller"),
                cluster_of("controller"),
                healths["controller"],
                clock,
            ),
            simulated.Runner(cluster, options.rules, clock).run(),
            volume_controller.VolumeController(cluster_of("volumes")).run(),
            history.run(
                options.state,
                options.notifications,
                bus_of("history"),
                clock,
                history_health,
                tuple(healths.values()),
            ),
            *([process_nodes.run()] if process_nodes.nodes else []),
        )
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(each) for each in work]
            try:
                url = f"http://{LOOPBACK}:{port}"
                agents_url = f"http://{LOOPBACK}:{agents_port}"
                yield System(url, cluster, tuple(healths.values()), view, agents_url, token)
            finally:
                for task in tasks:
                    task.cancel()


def _data_caches(
    options: Options, receiver: AgentReceiver, clock: runtime.Clock
) -> data_caches.DataCaches:
    """The caches of process nodes, which report to the monitor in this process."""

    async def exchange(node: str, body: bytes) -> bytes:
        try:
            return receiver.exchange_data(node, body)
        except agent_receiver.ReportRejectedError as error:
            raise errors.TransientError(f"report data of node {node}", str(error)) from None

    names = [str(document["metadata"]["name"]) for document in options.process_nodes]
    settings = data_caches.settings_for(
        names,
        shutil.disk_usage(options.state).free,
        options.data_origins,
        options.data_capacity_bytes,
    )
    folder = (options.state / "data").resolve()
    return data_caches.DataCaches(names, folder, settings, clock, exchange)


def _pod_usage(
    options: Options, receiver: AgentReceiver, clock: runtime.Clock
) -> pod_usage.UsageReporter:
    """The reporter of pods' usage on process nodes, to the monitor in this process."""

    async def exchange(node: str, body: bytes) -> bytes:
        try:
            return await receiver.report_pod_usage(node, body)
        except agent_receiver.ReportRejectedError as error:
            raise errors.TransientError(f"report pods of node {node}", str(error)) from None

    names = [str(document["metadata"]["name"]) for document in options.process_nodes]
    return pod_usage.UsageReporter(names, exchange, clock())


async def _view(options: Options) -> tuple[str, str]:
    if not options.process_nodes:
        return "", ""
    machine.check()
    return await machine.view()


def _webhooks(admissions: list[AdmissionService]) -> list[Webhook]:
    """The webhooks that the embedded cluster calls; ``admissions`` gets the services after the
    cluster is created."""

    def call_for(path: str) -> Any:
        async def call(body: bytes) -> bytes:
            return await admissions[0].answer(path, body)

        return call

    return [
        Webhook(
            kind=kind,
            operations=frozenset(operations),
            mutating=action == "mutate",
            call=call_for(f"/{kind.plural}/{action}"),
        )
        for kind, action, operations in webhooks.RULES
    ]
