"""Agents and the monitor: over HTTP, with tokens, each for its own node."""

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from services.monitor.tests import readings, shell
from services.monitor.tests.agent_accounts import AGENT, Accounts, user
from stromboli.embedded.bus import EmbeddedBus
from stromboli.embedded.cluster import EmbeddedCluster
from stromboli.monitor import agent_receiver, service
from stromboli.monitor.agent import __main__ as agent
from stromboli.monitor.agent import reporting
from stromboli.monitor.agent.pod_usage import PodUsageReporter
from stromboli.monitor.agent.settings import AgentSettings
from stromboli.monitor.core import pod_meter
from stromboli.monitor.data_cache import __main__ as data_cache
from stromboli.monitor.data_cache.settings import Settings as DataCacheSettings
from stromboli.monitor.settings import MonitorSettings
from stromboli.shared import decoding, envelope, errors, topics
from stromboli.shared.api import kinds
from stromboli.shared.bus import port as bus_port
from stromboli.shared.cluster import port as cluster_port
from stromboli.shared.jobspec import data_sets
from stromboli.shared.messages import base, data, node_topology, node_usage
from stromboli.shared.runtime import http, runtime
from stromboli.testkit import builders, objects, records
from stromboli.testkit.doubles import fake_kubelet, recorded_machines

SETTINGS = MonitorSettings(
    heartbeat_s=0.02, agents_account="kube-system/agents", agents_silence_s=0.0
)


class AgentServer:
    """A running monitor with its endpoint for agents."""

    def __init__(
        self, url: str, bus: bus_port.Bus, cluster: cluster_port.Cluster, known: Accounts
    ) -> None:
        self.url, self.bus, self.cluster, self.accounts = url, bus, cluster, known

    def monitor(self, node: str, token: str, folder: Path) -> reporting.MonitorClient:
        """The monitor from the view of an agent that claims to be on this node."""
        file = folder / f"{token or 'none'}.token"
        file.write_text(token)
        return reporting.MonitorClient(self.url, node, str(file))

    async def seen(self, count: int = 1) -> list[node_topology.TopologyObserved]:
        """The records on the topic, when there are this many."""
        found = await shell.until(self.bus, topics.TOPOLOGY, shell.count(count))
        decoded = [envelope.decode(record) for record in found]
        return [each for each in decoded if isinstance(each, node_topology.TopologyObserved)]


@pytest.fixture
async def agent_server(tmp_path: Path) -> AsyncIterator[AgentServer]:
    """A monitor that knows the nodes n1 and n2, and an agent's token for n1."""
    known_accounts = Accounts()
    known_accounts.users["good"] = user(AGENT, {agent_receiver.NODE_NAME: ("n1",)})
    async with contextlib.AsyncExitStack() as stack:
        bus = await stack.enter_async_context(EmbeddedBus(tmp_path / "log.db"))
        cluster = await stack.enter_async_context(EmbeddedCluster(tmp_path / "cluster.db"))
        for name in ("n1", "n2"):
            await cluster.create(kinds.NODES, "", objects.make(kinds.NODES, name))
        health = runtime.Health("monitor")
        known = agent_receiver.AgentReceiver(
            SETTINGS,
            known_accounts,
            cluster,
            runtime.utc_now,
            asyncio.get_running_loop().time,
        )
        port = await stack.enter_async_context(
            http.serving(agent_receiver.app(known), http.listen("127.0.0.1", 0))
        )
        serving = service.serve(SETTINGS, bus, cluster, health, lambda: builders.NOON, known)
        task = asyncio.create_task(serving)
        async with asyncio.timeout(records.DEADLINE_S):
            await health.ready()
        yield AgentServer(f"http://127.0.0.1:{port}", bus, cluster, known_accounts)
        task.cancel()
        await asyncio.wait([task])


async def step(of: agent.Agent, now_s: float = 0.0) -> None:
    await asyncio.to_thread(of.step, now_s)


async def refusal(of: reporting.MonitorClient) -> str:
    """The error for an agent whose report is rejected."""
    with pytest.raises(errors.ExternalError) as raised:
        await asyncio.to_thread(of.report, b"{}")
    return str(raised.value)


async def test_the_topic_has_the_machine_as_read_by_its_agent(
    agent_server: AgentServer, tmp_path: Path
) -> None:
    sys, nvml = recorded_machines.write(recorded_machines.eight_gpus_switched(), tmp_path)
    machine = readings.opened(sys, nvml)
    await step(agent.Agent(machine, agent_server.monitor("n1", "good", tmp_path), AgentSettings()))
    (topology,) = await agent_server.seen()
    assert topology.node == "n1"
    assert topology.topology == machine.read(0.0)
    assert agent_server.accounts.audiences == ("stromboli-monitor",)


async def test_allocations_of_the_kubelet_are_reported_immediately(
    agent_server: AgentServer, tmp_path: Path
) -> None:
    """Its files change: the next look does not wait for its time."""
    sys, nvml = recorded_machines.write(recorded_machines.plain_server(1), tmp_path)
    fake = fake_kubelet.FakeKubelet()
    folder = tmp_path / "kubelet"
    recorded_machines.put(folder / "cpu_manager_state", "{}")
    with fake_kubelet.serve(fake, folder):
        of = agent.Agent(
            readings.opened(sys, nvml, folder),
            agent_server.monitor("n1", "good", tmp_path),
            AgentSettings(),
        )
        await step(of, 0.0)
        fake.given = (fake_kubelet.ContainerAllocation(pod="p", cpus=(1,)),)
        await step(of, 1.0)
        recorded_machines.put(folder / "cpu_manager_state", '{"policyName": "static"}')
        await step(of, 2.0)
    topologies = await agent_server.seen(2)
    assert [[each.pod for each in one.topology.exclusive_allocations] for one in topologies] == [
        [],
        ["p"],
    ]


async def test_signs_of_life_are_small_and_a_monitor_that_forgot_gets_all_again(
    agent_server: AgentServer, tmp_path: Path
) -> None:
    sys, nvml = recorded_machines.write(recorded_machines.plain_server(1), tmp_path)
    monitor = agent_server.monitor("n1", "good", tmp_path)
    named = reporting.digest(base.encode(readings.opened(sys, nvml).read(0.0)))
    assert not await asyncio.to_thread(monitor.send_heartbeat, named)
    of = agent.Agent(readings.opened(sys, nvml), monitor, AgentSettings())
    await step(of, 0.0)
    assert await asyncio.to_thread(monitor.send_heartbeat, named)
    await step(of, 100.0)
    assert len(await agent_server.seen()) == 1
    assert agent_server.accounts.right == 1, "a good token is remembered"


@pytest.mark.parametrize("route", ["topology", "data", "usage", "podusage"])
async def test_an_unknown_client_is_refused_before_its_report_is_read(
    agent_server: AgentServer, route: str
) -> None:
    """Any client that reaches the port could fill the monitor's memory with reports."""
    host, port = agent_server.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    head = f"PUT /v1/nodes/n1/{route} HTTP/1.1\r\nhost: m\r\nauthorization: Bearer stolen\r\n"
    writer.write(f"{head}content-length: 1000\r\n\r\n".encode())
    async with asyncio.timeout(records.DEADLINE_S):
        status = await reader.readline()
    writer.close()
    assert status.startswith(b"HTTP/1.1 401 ")


async def test_an_agent_reports_only_for_its_own_node(
    agent_server: AgentServer, tmp_path: Path
) -> None:
    said = await refusal(agent_server.monitor("n2", "good", tmp_path))
    assert "403 this agent runs on node n1 and cannot report for node n2" in said


@pytest.mark.parametrize(
    ("token", "reason"),
    [
        ("", "401 send the service account's token"),
        ("stolen", "401 the API server rejected the token"),
        ("other", "403 system:serviceaccount:default:default is not the account of agents"),
        ("loose", "403 the token is not bound to a pod"),
        ("gone", "403 the token's pod kube-system/agent-x is deleted"),
        ("reborn", "403 the token's pod kube-system/agent-1 is deleted"),
        ("far", "404 the cluster has no node n9"),
    ],
)
async def test_a_client_that_is_no_agent_of_the_node_is_rejected_with_the_reason(
    agent_server: AgentServer, tmp_path: Path, token: str, reason: str
) -> None:
    pod = {agent_receiver.POD_NAME: ("agent-1",), agent_receiver.POD_UID: ("another",)}
    gone = {agent_receiver.POD_NAME: ("agent-x",), agent_receiver.POD_UID: ("1",)}
    await agent_server.cluster.create(kinds.PODS, "kube-system", agent_pod("agent-1"))
    agent_server.accounts.users |= {
        "other": user("system:serviceaccount:default:default", {agent_receiver.NODE_NAME: ("n1",)}),
        "loose": user(AGENT, {}),
        "gone": user(AGENT, gone),
        "reborn": user(AGENT, pod),
        "far": user(AGENT, {agent_receiver.NODE_NAME: ("n9",)}),
    }
    node = "n9" if token == "far" else "n1"
    assert reason in await refusal(agent_server.monitor(node, token, tmp_path))


async def test_a_token_without_a_node_is_resolved_by_its_pod(
    agent_server: AgentServer, tmp_path: Path
) -> None:
    """As before Kubernetes 1.30."""
    created = await agent_server.cluster.create(kinds.PODS, "kube-system", agent_pod("agent-1"))
    uid = kinds.metadata_of(created).uid
    extra = {agent_receiver.POD_NAME: ("agent-1",), agent_receiver.POD_UID: (uid,)}
    agent_server.accounts.users["pod"] = user(AGENT, extra)
    await asyncio.to_thread(agent_server.monitor("n2", "pod", tmp_path).report, b"{}")
    assert [each.node for each in await agent_server.seen()] == ["n2"]


def agent_pod(name: str) -> bytes:
    return objects.pod(name, nodeName="n2")


@pytest.mark.parametrize(
    "body", [b"", b"[]", b'{"numaNodes": 1}', b'{"numaNodes": [{"cpus": "0"}]}']
)
async def test_an_invalid_report_is_rejected(
    agent_server: AgentServer, tmp_path: Path, body: bytes
) -> None:
    monitor = agent_server.monitor("n1", "good", tmp_path)
    with pytest.raises(errors.ExternalError, match="400 not a valid node report"):
        await asyncio.to_thread(monitor.report, body)


async def test_an_unreachable_monitor_is_a_transient_error(tmp_path: Path) -> None:
    sys, nvml = recorded_machines.write(recorded_machines.plain_server(1), tmp_path)
    monitor = reporting.MonitorClient("http://127.0.0.1:1", "n1")
    of = agent.Agent(readings.opened(sys, nvml), monitor, AgentSettings())
    await step(of, 0.0)
    await step(of, 100.0)


# --- data caches ----------------------------------------------------------------------------


async def test_the_report_of_a_data_cache_is_answered_with_what_its_node_should_have(
    agent_server: AgentServer, tmp_path: Path
) -> None:
    wanted = data.DataWanted(node="n1", items=(data.WantedCopy(key="k", uri="https://a/b"),))
    scheduler = await agent_server.bus.open_writer("scheduler", "test")
    await scheduler.append(
        envelope.Draft(topic=topics.DATA_WANTED, key="n1", message=wanted, time=builders.NOON)
    )
    observed = data.DataObserved(node="n1", observed_at=builders.NOON, capacity_bytes=5)
    monitor = agent_server.monitor("n1", "good", tmp_path)

    async def answer() -> data.DataWanted:
        found = await asyncio.to_thread(monitor.exchange_data, base.encode(observed))
        return decoding.from_json(found, data.DataWanted)

    async with asyncio.timeout(records.DEADLINE_S):
        while await answer() != wanted:
            pass  # the monitor is reading the record
    (record,) = await shell.until(agent_server.bus, topics.DATA, shell.count(1))
    found = envelope.decode(record)
    assert isinstance(found, data.DataObserved)
    assert (found.node, found.capacity_bytes) == ("n1", 5)


async def test_a_data_cache_reports_only_for_its_own_node(
    agent_server: AgentServer, tmp_path: Path
) -> None:
    with pytest.raises(errors.ExternalError, match="403"):
        await asyncio.to_thread(
            agent_server.monitor("n2", "good", tmp_path).exchange_data,
            base.encode(data.DataObserved(node="n2", observed_at=builders.NOON)),
        )


async def test_a_report_of_data_that_cannot_be_read_is_rejected_with_the_reason(
    agent_server: AgentServer, tmp_path: Path
) -> None:
    with pytest.raises(errors.ExternalError, match="400 not a valid report of data: "):
        await asyncio.to_thread(
            agent_server.monitor("n1", "good", tmp_path).exchange_data, b'{"node":"n1"}'
        )


async def test_a_cache_as_a_process_fetches_what_the_monitor_answers_and_reports_it(
    agent_server: AgentServer, tmp_path: Path
) -> None:
    """As the DaemonSet runs it: it has HTTP, and neither Kafka nor a client of Kubernetes."""
    (tmp_path / "corpus.bin").write_bytes(b"content")
    uri = f"file://{tmp_path}/corpus.bin"
    item = data.WantedCopy(key=data_sets.content_key(uri, ""), uri=uri, pinned=True)
    scheduler = await agent_server.bus.open_writer("scheduler", "test")
    wanted = data.DataWanted(node="n1", items=(item,))
    await scheduler.append(
        envelope.Draft(topic=topics.DATA_WANTED, key="n1", message=wanted, time=builders.NOON)
    )
    (tmp_path / "token").write_text("good")
    settings = DataCacheSettings(
        node="n1",
        monitor=agent_server.url,
        token_file=str(tmp_path / "token"),
        root=str(tmp_path / "cache"),
        allowed_origins=("file:///",),
        disk_reserve_bytes=0,
        report_every_s=0.05,
    )
    health = runtime.Health("data_cache")

    def is_complete(found: list[envelope.Record]) -> bool:
        message = envelope.decode(found[-1])
        assert isinstance(message, data.DataObserved)
        return any(copy.state == "Complete" and copy.in_use for copy in message.copies)

    async with shell.going_on(data_cache.serve(settings, health)):
        await shell.until(agent_server.bus, topics.DATA, is_complete)
        async with asyncio.timeout(records.DEADLINE_S):
            await health.ready()
    content = Path(data_sets.volume_path(settings.root, item.key))
    assert (content / "corpus.bin").read_bytes() == b"content"


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"node": ""}, "STROM_DATA_CACHE_NODE"),
        ({"allowed_origins": ("a.org",)}, "STROM_DATA_CACHE_ALLOWED_ORIGINS: allowed origin"),
    ],
)
async def test_a_cache_with_invalid_settings_does_not_start(
    changed: dict[str, Any], reason: str
) -> None:
    settings = msgspec.structs.replace(DataCacheSettings(node="n1"), **changed)
    with pytest.raises(errors.ConfigurationError, match=reason):
        await data_cache.serve(settings, runtime.Health("data_cache"))


def write_pod(folder: Path, uid: str, cpu_ms: int) -> None:
    """A pod's cgroup (version 2)."""
    root = folder / "fs/cgroup"
    recorded_machines.put(root / "cgroup.controllers", "cpu memory")
    pod = root / f"kubepods/pod{uid}"
    recorded_machines.put(pod / "cpu.stat", f"usage_usec {cpu_ms * 1000}")
    recorded_machines.put(pod / "memory.current", 2**20)
    recorded_machines.put(pod / "memory.stat", "inactive_file 0")


def pod_reporter(
    agent_server: AgentServer,
    tmp_path: Path,
    node: str = "n1",
    allocations: tuple[node_topology.ExclusiveAllocation, ...] = (),
) -> PodUsageReporter:
    def gpus(wanted: frozenset[str]) -> dict[str, pod_meter.GpuReading]:
        return dict.fromkeys(wanted, pod_meter.GpuReading(0.5, 7))

    monitor = agent_server.monitor(node, "good", tmp_path)
    return PodUsageReporter(tmp_path / "sys/fs/cgroup", monitor, lambda: allocations, gpus)


async def used(agent_server: AgentServer) -> list[node_usage.PodUsageMeasured]:
    found = await shell.until(agent_server.bus, topics.POD_USAGE, shell.count(1))
    decoded = [envelope.decode(record) for record in found]
    return [each for each in decoded if isinstance(each, node_usage.PodUsageMeasured)]


async def test_what_a_pod_has_used_is_on_the_topic_after_its_end(
    agent_server: AgentServer, tmp_path: Path
) -> None:
    uid = "aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee"
    write_pod(tmp_path / "sys", uid, 1500)
    reporter = pod_reporter(agent_server, tmp_path)
    await asyncio.to_thread(reporter.step, 0.0)
    shutil.rmtree(tmp_path / f"sys/fs/cgroup/kubepods/pod{uid}")
    await asyncio.to_thread(reporter.step, 1.0)
    (pod_usage_measured,) = await used(agent_server)
    assert pod_usage_measured.node == "n1"
    assert [(it.pod_uid, it.cpu_ms) for it in pod_usage_measured.pods] == [(uid, 1500)]


async def test_an_agent_that_stops_reports_its_last_values(
    agent_server: AgentServer, tmp_path: Path
) -> None:
    write_pod(tmp_path / "sys", "aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee", 1500)
    reporter = pod_reporter(agent_server, tmp_path)
    await asyncio.to_thread(reporter.step, 0.0)
    await asyncio.to_thread(reporter.close, 1.0)
    assert [it.cpu_ms for each in await used(agent_server) for it in each.pods] == [1500]


async def test_an_agent_reports_no_pods_of_another_node(
    agent_server: AgentServer, tmp_path: Path
) -> None:
    monitor = agent_server.monitor("n2", "good", tmp_path)
    body = base.encode(node_usage.PodUsageReport(sampler="run"))
    with pytest.raises(errors.ExternalError, match="cannot report for node n2"):
        await asyncio.to_thread(monitor.report_pod_usage, body)


async def test_the_gpus_of_a_pod_are_found_by_its_name(
    agent_server: AgentServer, tmp_path: Path
) -> None:
    """The kubelet tells names, cgroups have uids: the monitor knows both."""
    pod = objects.make(
        kinds.PODS, "p", spec={"nodeName": "n1", "containers": [{"name": "c", "image": "c"}]}
    )
    raw = await agent_server.cluster.create(kinds.PODS, "default", pod)
    uid = kinds.metadata_of(raw).uid
    await shell.until(agent_server.bus, topics.PODS, shell.count(1))
    device = node_topology.AllocatedDevices(resource="nvidia.com/gpu", ids=("GPU-1",))
    held = (node_topology.ExclusiveAllocation(namespace="default", pod="p", devices=(device,)),)
    write_pod(tmp_path / "sys", uid, 1)
    reporter = pod_reporter(agent_server, tmp_path, allocations=held)
    for second in (0.0, 10.0, 30.0):
        await asyncio.to_thread(reporter.step, second)
    await asyncio.to_thread(reporter.close, 31.0)
    pods = [it for each in await used(agent_server) for it in each.pods]
    assert [(it.pod_uid, it.gpu_ms, it.max_gpu_memory_bytes) for it in pods[-1:]] == [
        (uid, 10_000, 7)
    ]
