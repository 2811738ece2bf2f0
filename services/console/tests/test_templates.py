"""Branches of templates that end-to-end tests do not reach: hardware, leaders, dead letters."""

from datetime import timedelta
from typing import Any

import msgspec

from stromboli.cli.render.nodes import node_layout
from stromboli.console import templating
from stromboli.console.core import cluster_rows
from stromboli.shared.api.scheduling import QueueSpec
from stromboli.shared.api.views import system_health
from stromboli.shared.messages import node_topology
from stromboli.testkit.builders import NOON, make_node

BASE: dict[str, Any] = {"session": None, "section": "nodes", "live": "", "follows": False}
HOSTILE = "<script>alert(1)</script>"


def shown(template: str, **values: Any) -> str:
    return templating.page(template, {**BASE, **values}).decode()


def gpu(index: int, **fields: Any) -> node_topology.Gpu:
    known: dict[str, Any] = {"uuid": f"GPU-{index}", "model": "NVIDIA H100", "numa_node": 0}
    return node_topology.Gpu(index=index, **known | fields)


MACHINE = node_topology.NodeTopology(
    numa_nodes=(
        node_topology.NumaNode(id=0, cpus="0-3", memory_bytes=64 * 2**30, distances=(10,)),
    ),
    cores=(node_topology.CpuCore(cpus="0,1"), node_topology.CpuCore(cpus="2,3")),
    gpus=(
        gpu(0),
        gpu(1, problems=("XID 79",), slices=(node_topology.MigSlice(uuid="M", profile="1g.10gb"),)),
    ),
    gpu_connections=(("X", "NV18"), ("NV18", "X")),
    nvlinks=((0, 18), (18, 0)),
    nics=(node_topology.Nic(name="ib0", rdma="mlx5_0", numa_node=0),),
    exclusive_allocations=(
        node_topology.ExclusiveAllocation(
            namespace="team",
            pod=HOSTILE,
            container="main",
            cpus="2-3",
            devices=(node_topology.AllocatedDevices(resource="nvidia.com/gpu", ids=("GPU-0",)),),
        ),
    ),
    read_failures=(node_topology.ReadFailure(what="huge pages", why="no such file"),),
)


def test_a_node_shows_its_gpus_their_links_and_who_holds_them() -> None:
    topology = node_topology.TopologyObserved(
        node="n1", at=NOON, topology=MACHINE, silent_since=NOON
    )
    (row,) = cluster_rows.node_rows([cluster_rows.node_facts(make_node("n1"))], [])
    layout = node_layout.node_layout(topology, NOON + timedelta(minutes=5))
    text = shown("node.html", row=row, path=("cluster", "rack-a"), layout=layout)
    for part in ("NV18", "XID 79", "MIG: 1g.10gb", "ib0 (mlx5_0)", "0-3", "2,3", "no such file"):
        assert part in text, part
    assert '<p class="muted">0 pods</p>' in text
    assert HOSTILE not in text
    assert text.count("&lt;script&gt;") >= 2, "the holder of the GPU, and its allocation"


def test_a_node_without_gpus_has_no_empty_tables() -> None:
    topology = node_topology.TopologyObserved(
        node="n1", at=NOON, topology=node_topology.NodeTopology(cores=MACHINE.cores)
    )
    (row,) = cluster_rows.node_rows([cluster_rows.node_facts(make_node("n1"))], [])
    layout = node_layout.node_layout(topology, NOON)
    text = shown("node.html", row=row, path=("cluster",), layout=layout)
    assert "Connections of GPUs" not in text
    assert "Exclusive allocations" not in text


def test_a_node_with_one_pod_has_1_pod() -> None:
    (row,) = cluster_rows.node_rows([cluster_rows.node_facts(make_node("n1"))], [])
    row = msgspec.structs.replace(row, pods=1)
    assert ">1 pod</p>" in shown("node.html", row=row, path=(), layout=None)


def test_the_system_page_names_the_leader_and_the_last_dead_letter() -> None:
    health = system_health.SystemHealth(
        at=NOON,
        problems={"sync": "queues last seen 60 s ago"},
        warnings={"cache": "the log does not answer"},
        topics=(system_health.TopicStatus(name="batch.events", writer="controller", end=3, lag=2),),
        leaders=(
            system_health.LeaderStatus(
                service="scheduler",
                holder="scheduler-1",
                duration_s=15,
                renewed_at=NOON,
                is_expired=True,
            ),
        ),
        dead_letters=2,
        last_dead_letter=system_health.DeadLetterStatus(
            topic="batch.events",
            offset=7,
            key=HOSTILE,
            reported_by="controller",
            reason="not JSON",
            at=NOON,
        ),
    )
    text = shown("system.html", health=health, grafana="")
    assert "UTC</time> ago" not in text, "the script writes ago after an age, not after a time"
    for part in ("queues last seen 60 s ago", "scheduler-1", "expired", "2 records", "not JSON"):
        assert part in text, part
    assert HOSTILE not in text


def test_the_system_page_links_to_grafana_where_there_is_one() -> None:
    health = system_health.SystemHealth(at=NOON, topics=(), leaders=(), dead_letters=0)
    text = shown("system.html", health=health, grafana="https://grafana.example/d/x?a=1&b=2")
    assert '<a href="https://grafana.example/d/x?a=1&amp;b=2" rel="noreferrer">' in text
    assert "Grafana" not in shown("system.html", health=health, grafana="")


def test_a_queue_says_why_its_history_is_missing() -> None:
    row = cluster_rows.QueueRow(
        name="a", depth=0, state="Closed", weight=1, running=0, pending=0, gauges=()
    )
    spec = QueueSpec(reclaimable=False, priority=3)
    known = {"row": row, "path": [], "children": [], "spec": spec, "history": None}
    assert "no history service" in shown("queue.html", **known, problem="no history service")
    assert "You may not read the usage" in shown("queue.html", **known, problem="")
