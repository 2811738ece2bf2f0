"""Defaults and validation of PodGroups.

The PodGroup of a job is not validated, since the job was validated with the same queue.
"""

from collections.abc import Iterator, Mapping

from stromboli.shared import decoding
from stromboli.shared import network_topology as network
from stromboli.shared.api import kinds
from stromboli.shared.api.batch import NetworkTopology
from stromboli.shared.api.meta import Part
from stromboli.shared.api.scheduling import PodGroup, Queue
from stromboli.shared.jobspec.validation import topology
from stromboli.shared.jobspec.validation.patch import Add, Document
from stromboli.shared.jobspec.validation.queueing import queues as queue_rules
from stromboli.shared.messages.admission import Violation

DEFAULT_QUEUE = "default"


class _SubGroup(Part, frozen=True, kw_only=True):
    network_topology: NetworkTopology | None = None


class _TopologyFields(Part, frozen=True, kw_only=True):
    """The fields of the spec that contain network topologies, which only admission reads."""

    network_topology: NetworkTopology | None = None
    sub_group_policy: tuple[_SubGroup, ...] = ()


def default_patch(group: PodGroup, document: Document, namespace_queue: str) -> tuple[Add, ...]:
    """The patch that replaces queue ``default`` by the default queue of the namespace."""
    if group.spec.queue != DEFAULT_QUEUE or not namespace_queue or kinds.JOBS.controls(group):
        return ()
    if "spec" not in document:
        return (Add(path="/spec", value={"queue": namespace_queue}),)
    return (Add(path="/spec/queue", value=namespace_queue),)


def update_patch(
    group: PodGroup, old: PodGroup, document: Document, namespace_queue: str
) -> tuple[Add, ...]:
    """The patch that keeps the namespace's queue if an update leaves the queue out (the schema then
    sets ``default``). mpi-operator, for example, writes its desired spec whenever the stored
    one differs. An update to another queue is not changed."""
    if old.spec.queue != namespace_queue:
        return ()
    return default_patch(group, document, namespace_queue)


def validate_create(
    group: PodGroup,
    document: Document,
    queues: Mapping[str, Queue],
    tiers: network.Tiers | None = None,
) -> Iterator[Violation]:
    """All violations of a new PodGroup. Raises msgspec.ValidationError."""
    if group.spec.queue and not kinds.JOBS.controls(group):
        yield from queue_rules.validate_open(group.spec.queue, queues)
    fields = decoding.convert(document.get("spec") or {}, _TopologyFields)
    near = {"spec.networkTopology": fields.network_topology} | {
        f"spec.subGroupPolicy[{index}].networkTopology": sub.network_topology
        for index, sub in enumerate(fields.sub_group_policy)
    }
    for path, wanted in near.items():
        yield from topology.violations(wanted, path)
        if (
            group.metadata.controller is None
        ):  # no user would see the rejection of a generated PodGroup
            yield from topology.unsatisfiable(wanted, path, tiers)
