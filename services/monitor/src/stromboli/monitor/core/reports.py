"""Agents' reports of their nodes' hardware, and what is published on ``cluster.topology``.

Pure: reports and heartbeats in, drafts out; time is an argument. ``node_records`` has the rules of
what is published.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta

import msgspec

from stromboli.monitor.core import node_records
from stromboli.shared import decoding, envelope, topics
from stromboli.shared.messages import base, node_topology

MOST_CPUS = 8192
"""CPUs of a machine, as many as Linux supports. Each is in one NUMA node, one core, and one
exclusive allocation at most. Readers expand lists of CPUs: 40,000 allocations of all CPUs each,
which is a report of 4 MB, would take the scheduler minutes."""
MOST_NUMA_NODES = 1024
MOST_GPUS = 256
MOST_DEVICES = 16_384
MOST_ALLOCATIONS = 4096
"""Containers with exclusive resources; kubelets run 110 pods unless they are set otherwise."""


class NodeReports(node_records.NodeRecords[node_topology.TopologyObserved]):
    """The last reports of all node agents. ``silence``: time without a report or heartbeat after
    which an agent counts as silent.
    """

    topic = topics.TOPOLOGY

    def __init__(self, silence: timedelta) -> None:
        super().__init__(node_topology.TopologyObserved, silence, lambda message: message.at)

    def report(
        self, node: str, topology: node_topology.NodeTopology, digest: str, now: datetime
    ) -> envelope.Draft | None:
        """Apply an agent's report; None if it is unchanged."""
        before = self._known.get(node)
        if (
            before is not None
            and before.observed.topology == topology
            and before.observed.silent_since is None
            and node not in self._overwritten
        ):
            self._known[node] = msgspec.structs.replace(before, last_report_at=now, digest=digest)
            return None
        observed = node_topology.TopologyObserved(node=node, at=now, topology=topology)
        return self._draft_change(node_records.PublishedReport(observed, now, now, digest), now)

    def heartbeat(self, node: str, digest: str, now: datetime) -> bool:
        """Apply a heartbeat; returns whether the report it names is the current one, so that it
        need not be sent again.
        """
        known = self._known.get(node)
        if known is None or known.observed.silent_since is not None or known.digest != digest:
            return False
        self._known[node] = msgspec.structs.replace(known, last_report_at=now)
        return True


def read(body: bytes) -> node_topology.NodeTopology:
    """Decode an agent's report. Raises msgspec.DecodeError, also if the report cannot be
    encoded as a record, or describes more hardware than a machine has.
    """
    topology = decoding.decode(_DECODER, body)
    for what, count, most in _sizes(topology):
        if count > most:
            raise msgspec.DecodeError(f"it has {count} {what}, at most {most} are allowed")
    try:
        base.encode(topology)
    except (TypeError, ValueError, OverflowError) as error:
        raise msgspec.DecodeError(str(error)) from None
    return topology


def _sizes(topology: node_topology.NodeTopology) -> Iterator[tuple[str, int, int]]:
    """What readers expand or compare in pairs: its name, its number, and the limit."""
    gpus = len(topology.gpus)
    yield "NUMA nodes", len(topology.numa_nodes), MOST_NUMA_NODES
    yield "GPUs", gpus, MOST_GPUS
    yield "NICs", len(topology.nics), MOST_DEVICES
    yield "PCI devices", len(topology.pci), MOST_DEVICES
    yield "exclusive allocations", len(topology.exclusive_allocations), MOST_ALLOCATIONS
    for what, lists in (
        ("CPUs of NUMA nodes", [it.cpus for it in topology.numa_nodes]),
        ("CPUs of cores", [it.cpus for it in topology.cores]),
        ("exclusive CPUs", [it.cpus for it in topology.exclusive_allocations]),
        ("offline CPUs", [topology.offline_cpus]),
        ("reserved CPUs", [topology.kubelet.reserved_cpus]),
    ):
        yield what, sum(map(_count_cpus, lists)), MOST_CPUS
    for what, rows in (
        ("connections of GPUs", topology.gpu_connections),
        ("NVLinks of GPUs", topology.nvlinks),
        ("connections of NICs", [it.gpu_connections for it in topology.nics]),
    ):
        most_rows = len(topology.nics) if what.endswith("NICs") else gpus
        yield what, sum(map(len, rows)), most_rows * gpus


def _count_cpus(listed: str) -> int:
    """The number of CPUs in a list, without expanding it; of an invalid part, one."""
    count = 0
    for part in listed.split(",") if listed else ():
        first, _, last = part.strip().partition("-")
        low, high = decoding.number(first), decoding.number(last or first)
        count += 1 if low is None or high is None else max(high - low, 0) + 1
    return count


_DECODER = decoding.decoder_of(node_topology.NodeTopology)
